#include "test_template.h"
TEST_MAIN()
