/* Which device --device means, over a driver with GPUs (fake_cuda.h); and the devices of sections. */
#include "fake_cuda.h"

#include "host/device_choice.h"
#include "host/runtime.h"
#include "host/settings.h"
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
    assert_string_equal(c.memory.name, "cuda:0");
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

TEST(auto_passes_over_devices_up_to_the_cpu)
{
    struct settings o = {.process.device = "auto"}, named = {.process.device = "cuda:0"};
    struct settings replicas = {.process.device = "auto", .model.replicas = 2};
    struct device_choice c;
    struct err e = {{0}};
    fake_cuda.devices = 2;
    assert_true(device_choose_next(&o));
    assert_int_equal(device_choose(&o, &c, &e), 0);
    assert_string_equal(c.memory.name, "cuda:1");
    assert_true(device_choose_next(&o));
    assert_int_equal(device_choose(&o, &c, &e), 0);
    assert_null(c.memory.name);
    assert_false(device_choose_next(&o));
    assert_false(device_choose_next(&named));
    assert_false(device_choose_next(&replicas));
    fake_cuda.devices = 0;
}

/* The device of replica number `replica`; NULL: refused. */
static const char *replica_of(const char *device, uint32_t replica)
{
    struct settings o = {.process.device = device, .model.replicas = replica + 1};
    const char *name = NULL;
    struct err e = {{0}};
    int r = device_choose_replica(&o, replica, &name, &e);
    assert_true(r == 0 || strstr(e.text, "--replicas"));
    return name;
}

TEST(replicas_are_on_the_next_devices)
{
    fake_cuda.devices = 3;
    assert_string_equal(replica_of("cuda:0", 2), "cuda:2");
    assert_string_equal(replica_of("cuda:1", 1), "cuda:2");
    assert_null(replica_of("cuda:1", 2));
    assert_string_equal(replica_of(NULL, 1), "cuda:1");
    fake_cuda.first_old = true; /* auto begins with the second */
    assert_string_equal(replica_of("auto", 1), "cuda:2");
    assert_null(replica_of("auto", 2));
    fake_cuda.first_old = false;
    fake_cuda.devices = 0;
    assert_string_equal(replica_of("fake:5,step=7", 2), "fake:7");
    assert_null(replica_of("fake:5", 3));
    assert_string_equal(replica_of("cpu", 0), "cpu");
    assert_null(replica_of("cpu", 1));
}

TEST(a_place_that_is_no_device_is_refused_by_its_option)
{
    const struct settings o = {.process.device = "fake:0", .model.place = "layers 0-3=fake:1,rest=fake:9"};
    struct device_choices all;
    struct err e = {{0}};
    assert_int_equal(device_choices_of(&o, &all, &e), -EINVAL);
    assert_int_equal(strncmp(e.text, "--place: ", 9), 0);
    assert_non_null(strstr(e.text, "fake:9"));
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

/* ---- measured ---- */

#define MIB           ((uint64_t)1 << 20)
#define CONTEXT_BYTES (328 * MIB)
#define RESERVE_BYTES (256 * MIB)

static void on_gpu(size_t others_bytes)
{
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    fake_cuda.context_bytes = CONTEXT_BYTES;
    fake_cuda.others_bytes = others_bytes;
}

/* Returns the choice of the first GPU, with --device-memory-limit; closed. */
static struct device_choice measured(uint64_t limit)
{
    const struct settings o = {.process = {.device = "cuda:0", .device_memory_limit = limit}};
    struct device_choices all = {.count = 0};
    struct err e = {{0}};
    assert_int_equal(device_choices_add(&o, &all, &e), 0);
    assert_int_equal(fake_cuda.contexts, 0);
    assert_int_equal(device_choices_measure(&o, &all, &e), 0);
    assert_true(all.list[0].opened && fake_cuda.contexts == 1);
    device_choices_close(&all);
    assert_int_equal(fake_cuda.contexts, 0);
    /* Once for all models of a plan. */
    unsigned created = fake_cuda.created;
    assert_int_equal(device_choices_add(&o, &all, &e), 0);
    if (all.list[0].measured.total_bytes > 0)
        assert_int_equal(device_choices_measure(&o, &all, &e), 0);
    assert_true(all.count == 1 && fake_cuda.created == created);
    return all.list[0];
}

TEST(a_ceiling_is_what_was_free_with_the_context_less_a_reserve)
{
    on_gpu(4 * MIB);
    struct device_choice c = measured(0);
    assert_int_equal(c.memory.context_bytes, CONTEXT_BYTES);
    assert_int_equal(c.memory.ceiling_bytes, FAKE_TOTAL_BYTES - 4 * MIB - RESERVE_BYTES);
    assert_int_equal(device_choice_others_bytes(&c), 0);
    assert_int_equal(measured(2048 * MIB).memory.ceiling_bytes, 2048 * MIB);
    on_gpu(FAKE_TOTAL_BYTES - 2048 * MIB);
    c = measured(0);
    assert_int_equal(c.memory.ceiling_bytes, 2048 * MIB - RESERVE_BYTES);
    assert_int_equal(device_choice_others_bytes(&c), FAKE_TOTAL_BYTES - 2048 * MIB);
    assert_int_equal(measured(4096 * MIB).memory.ceiling_bytes, 2048 * MIB - RESERVE_BYTES);
    assert_int_equal(measured(1024 * MIB).memory.ceiling_bytes, 1024 * MIB);
}

/* A look opens nothing, and what the driver does not say stays as it was estimated. */
TEST(a_ceiling_that_is_not_measured_is_an_estimate)
{
    struct settings o = {.process.device = "cuda:0"};
    struct device_choice c;
    struct err e = {{0}};
    on_gpu(FAKE_TOTAL_BYTES - MIB);
    assert_int_equal(device_choose(&o, &c, &e), 0);
    assert_true(fake_cuda.created == 0 && c.memory.context_bytes == 0);
    assert_int_equal(c.memory.ceiling_bytes, FAKE_TOTAL_BYTES - 1024 * MIB);
    fake_cuda.no_info = true;
    c = measured(0);
    assert_int_equal(c.memory.ceiling_bytes, FAKE_TOTAL_BYTES - 1024 * MIB);
    assert_true(c.memory.context_bytes == 0 && device_choice_others_bytes(&c) == 0);
}

/* Returns the refusal of the first GPU. */
static struct err refused(uint64_t limit, int error)
{
    const struct settings o = {.process = {.device = "cuda:0", .device_memory_limit = limit}};
    struct device_choices all = {.count = 0};
    struct err e = {{0}};
    assert_int_equal(device_choices_add(&o, &all, &e), 0);
    assert_int_equal(device_choices_measure(&o, &all, &e), error);
    device_choices_close(&all);
    assert_int_equal(fake_cuda.contexts, 0);
    return e;
}

TEST(a_gpu_that_others_fill_is_refused)
{
    on_gpu(FAKE_TOTAL_BYTES - CONTEXT_BYTES - RESERVE_BYTES + MIB);
    assert_string_equal(
        refused(0, -ENOSPC).text,
        "device cuda:0 could not be opened: of its memory, 80.0 GiB, 255.0 MiB are free, and the "
        "driver needs 256.0 MiB as it goes; --device cpu does without it");
    on_gpu(0);
    fake_cuda.is_full = true;
    assert_string_equal(
        refused(0, -ENOSPC).text,
        "device cuda:0 could not be opened: other programs leave no room in its memory; --device "
        "cpu does without it");
}

TEST(a_limit_below_the_context_is_refused)
{
    on_gpu(0);
    assert_string_equal(refused(100 * MIB, -ENOMEM).text,
                        "--device-memory-limit 100.0 MiB: the context of device cuda:0 takes 328.0 MiB");
    assert_int_equal(measured(CONTEXT_BYTES).memory.ceiling_bytes, CONTEXT_BYTES);
}

/* ---- in a process ---- */

TEST(a_process_has_an_account_for_the_context)
{
    static struct settings o;
    struct device_choices all = {.count = 0};
    struct planning p = {.settings = &o, .seqs = 1, .queue = 1, .workers = 1, .devices = &all};
    struct plan_process process;
    struct runtime rt;
    struct err e = {{0}};
    on_gpu(0);
    assert_int_equal(settings_defaults(&o, &e), 0);
    assert_int_equal(device_choices_add(&o, &all, &e), 0);
    assert_int_equal(device_choices_measure(&o, &all, &e), 0);
    planning_process(&p, true, &process);
    assert_int_equal(plan_process_bytes(&process, 1), CONTEXT_BYTES);
    assert_int_equal(runtime_open_process(&o, &process, &all, 1, &rt, &e), 0);
    assert_true(fake_cuda.contexts == 1 && !all.list[0].opened);
    device_choices_close(&all);
    struct account_numbers root = account_numbers(rt.device_roots[1]);
    struct account_numbers context = account_numbers(accounts_find(rt.device_roots[1], ACCOUNT_CONTEXT));
    assert_int_equal(root.limit, FAKE_TOTAL_BYTES - RESERVE_BYTES);
    assert_true(root.used == CONTEXT_BYTES && root.reserved == CONTEXT_BYTES && root.children == 1);
    assert_true(context.used == CONTEXT_BYTES && context.limit == CONTEXT_BYTES &&
                context.planned == CONTEXT_BYTES);
    assert_int_equal(context.class, ACCOUNT_DEVICE);
    ledger_check(rt.ledger);
    runtime_close(&rt);
    assert_int_equal(fake_cuda.contexts, 0);
    settings_done(&o);
}

/* The stacks of a process with these devices are those of `sets` times the CPU's workers. */
static void check_stacks(const char *const devices[2], uint32_t sets)
{
    static struct settings o;
    struct device_choices all = {.count = 0};
    struct planning p = {.settings = &o, .seqs = 1, .queue = 1, .workers = 3, .devices = &all};
    struct plan_process process;
    struct runtime rt;
    struct err e = {{0}};
    assert_int_equal(settings_defaults(&o, &e), 0);
    for (uint32_t i = 0; i < 2; i++) {
        o.process.device = devices[i];
        assert_int_equal(device_choices_add(&o, &all, &e), 0);
    }
    assert_int_equal(device_choices_measure(&o, &all, &e), 0);
    planning_process(&p, true, &process);
    assert_int_equal(process.threads_bytes, sets * device_stack_bytes(p.workers));
    assert_int_equal(runtime_open_process(&o, &process, &all, p.workers, &rt, &e), 0);
    device_choices_close(&all);
    assert_int_equal(account_numbers(rt.threads).used, process.threads_bytes);
    runtime_close(&rt);
    o.process.device = NULL;
    settings_done(&o);
}

/* The CPU has workers, which a GPU's models use, too; a fake device has its own. */
TEST(stacks_are_planned_as_the_devices_have_them)
{
    on_gpu(0);
    check_stacks((const char *const[]){"cpu", "cpu"}, 1);
    check_stacks((const char *const[]){"cpu", "cuda:0"}, 1);
    check_stacks((const char *const[]){"fake:0", "cuda:0"}, 2);
    check_stacks((const char *const[]){"fake:0", "cpu"}, 2);
    check_stacks((const char *const[]){"fake:0", "fake:1"}, 3);
}

TEST_MAIN()
