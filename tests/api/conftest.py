def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: quick tests that also run under AddressSanitizer")
