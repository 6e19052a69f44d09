plateau_test(test_media_queue media)
