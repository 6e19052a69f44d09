/* Which device --device means, over a driver with GPUs (fake_cuda.h); and the devices of sections. */
#include "fake_cuda.h"

#include "host/device_choice.h"
#include "host/settings_table.h"

#include <errno.h>
#include <string.h>

static const char *chosen(const char *text)
{
    struct settings o = {.process.device = text};
    struct device_choice c;
    struct err e = {{0}};
    int r = device_choose(&o, &c, &e);
    assert_true(r == 0 ? e.text[0] == 0 : strstr(e.text, text) != NULL);
    return r < 0 ? "refused" : c.memory.name ? c.memory.name : "cpu";
}

TEST(auto_is_the_first_gpu_that_suits)
{
    assert_string_equal(chosen(NULL), "cuda:0");
    assert_string_equal(chosen("auto"), "cuda:0");
    fake_cuda.first_old = true;
    assert_string_equal(chosen("auto"), "cpu");
    fake_cuda.devices = 2;
    assert_string_equal(chosen("auto"), "cuda:1");
    fake_cuda.first_old = false;
    assert_string_equal(chosen("auto"), "cuda:0");
    fake_cuda.devices = 0;
}

TEST(auto_is_the_cpu_where_a_gpu_has_not_the_mode)
{
    struct settings o = {.model.compute = "int8"};
    struct device_choice c;
    struct err e = {{0}};
    assert_int_equal(device_choose(&o, &c, &e), 0);
    assert_null(c.memory.name);
    o.model.compute = "bf16";
    o.model.kv_dtype = "int8";
    assert_int_equal(device_choose(&o, &c, &e), 0);
    assert_null(c.memory.name);
    o.model.kv_dtype = "auto";
    assert_int_equal(device_choose(&o, &c, &e), 0);
    assert_string_equal(c.memory.name, "cuda:0");
}

TEST(a_device_that_is_named_is_that_one)
{
    fake_cuda.devices = 2;
    assert_string_equal(chosen("cpu"), "cpu");
    assert_string_equal(chosen("cuda:1"), "cuda:1");
    assert_string_equal(chosen("cuda:2"), "refused");
    assert_string_equal(chosen("fake:3"), "fake:3");
    assert_string_equal(chosen("gpu"), "refused");
    fake_cuda.devices = 0;
}

static const struct setting_row *device_row(void)
{
    for (size_t i = 0; i < settings_table_count; i++)
        if (strcmp(settings_table[i].name, "device") == 0)
            return &settings_table[i];
    fail_msg("no device");
    return NULL;
}

TEST(each_device_of_the_process_and_its_sections_comes_once)
{
    static const char *const sections[][2] = {
        {"a", "cpu"}, {"b", "fake:1"}, {"c", "cuda:0"}, {"d", "fake:1,step=5"}, {"e", "auto"}};
    struct settings o;
    struct device_choices all;
    struct err e = {{0}};
    assert_int_equal(settings_defaults(&o, &e), 0);
    for (size_t i = 0; i < COUNT_OF(sections); i++)
        assert_int_equal(settings_set_section(&o, sections[i][0], device_row(), sections[i][1], &e), 0);
    assert_int_equal(device_choose_all(&o, &all, &e), 0);
    assert_int_equal(all.count, 3);
    assert_string_equal(all.list[0].memory.name, "cuda:0"); /* auto */
    assert_null(all.list[1].memory.name);
    assert_string_equal(all.list[2].memory.name, "fake:1");

    struct plan_process p = {.devices = {all.list[0].memory}, .device_count = 1};
    uint32_t domain = 9;
    assert_int_equal(device_choice_domain(&all.list[1], &p, &domain, &e), 0);
    assert_int_equal(domain, 0);
    assert_int_equal(device_choice_domain(&all.list[0], &p, &domain, &e), 0);
    assert_int_equal(domain, 1);
    assert_int_equal(device_choice_domain(&all.list[2], &p, &domain, &e), -ENODEV);
    assert_non_null(strstr(e.text, "fake:1"));

    assert_int_equal(settings_set_section(&o, "f", device_row(), "cuda:7", &e), 0);
    assert_int_equal(device_choose_all(&o, &all, &e), -ENODEV);
    assert_non_null(strstr(e.text, "[model f]"));
    settings_done(&o);
}

TEST_MAIN()
