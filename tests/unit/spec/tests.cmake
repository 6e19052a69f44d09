plateau_test(test_ngram spec base)
plateau_test(test_drafting spec)
plateau_test(test_draft_length spec LABELS slow)
