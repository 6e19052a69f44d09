# `cmake --install BUILD` and the packages of CPack. Manual pages and completions are written by the program that is
# installed, from its own table of options.
include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR})

install(TARGETS plateau RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY models/canary DESTINATION ${share}/plateau/models)
install(FILES packaging/systemd/plateau.env packaging/systemd/notify-reload.conf packaging/systemd/gpu.conf
  DESTINATION ${share}/plateau/systemd)
install(DIRECTORY packaging/grafana packaging/prometheus DESTINATION ${share}/plateau)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES packaging/debian/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Runs `plateau WORDS...` and keeps what it prints as FILE below the prefix; its folder is made.
install(CODE "
  set(root \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  set(program \"${CMAKE_BINARY_DIR}/plateau\")
  function(write_page file)
    get_filename_component(folder \"\${root}/\${file}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"\${program}\" \${ARGN} OUTPUT_FILE \"\${root}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Installing: \${root}/\${file}\")
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_PREFIX}/\${file}\")
    set(CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_MANIFEST_FILES}\" PARENT_SCOPE)
  endfunction()
  function(write_manual file)
    write_page(\${file} manual \${ARGN})
    execute_process(COMMAND gzip -9nf \"\${root}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  set(man \"${CMAKE_INSTALL_MANDIR}\")
  write_manual(\${man}/man1/plateau.1)
  write_manual(\${man}/man5/plateau.ini.5 ini)
  execute_process(COMMAND \"\${program}\" manual --names OUTPUT_VARIABLE commands COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL \"[a-z]+\" commands \"\${commands}\")
  foreach(command \${commands})
    write_manual(\${man}/man1/plateau-\${command}.1 \${command})
  endforeach()
  write_page(${share}/bash-completion/completions/plateau completion bash)
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    write_page(${share}/zsh/vendor-completions/_plateau completion zsh)
  else()
    write_page(${share}/zsh/site-functions/_plateau completion zsh)
  endif()
  write_page(${share}/fish/vendor_completions.d/plateau.fish completion fish)
")

# The unit names the program where it is installed. Under /usr, as a package, the configuration goes to /etc; elsewhere
# it is an example.
install(CODE "
  set(ini \"\${CMAKE_INSTALL_PREFIX}/${share}/plateau/systemd\")
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    set(ini /etc/plateau)
  endif()
  file(INSTALL DESTINATION \"\${ini}\" TYPE FILE FILES \"${CMAKE_SOURCE_DIR}/packaging/systemd/plateau.ini\")
  file(READ \"${CMAKE_SOURCE_DIR}/packaging/systemd/plateau.service\" unit)
  string(REPLACE /usr/local/bin/plateau \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/plateau\" unit \"\${unit}\")
  file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/plateau.service\" \"\${unit}\")
  message(STATUS \"Installing: \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/plateau.service\")
")

# ---- packages: make deb, make tar ----
set(CPACK_PACKAGE_NAME plateau)
set(CPACK_PACKAGE_VENDOR "Plateau")
# DEBFULLNAME and DEBEMAIL name the maintainer of a package, as for Debian's own tools.
set(CPACK_PACKAGE_CONTACT "The Plateau authors <plateau@example.org>")
if(DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL})
  set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference server with planned and bounded memory")
set(CPACK_PACKAGE_DESCRIPTION "Plateau serves large language models over HTTP with OpenAI's and
Anthropic's API. It computes a memory plan before it loads a model, keeps
to it, and returns memory that is not used.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Certificates for plateau pull; libzmq5 for --kv-events, libhiredis for --shared-cache. Videos need ffmpeg, which brings a hundred packages and is found when it is there.
set(CPACK_DEBIAN_PACKAGE_DEPENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "ffmpeg, libhiredis0.14, libzmq5")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/debian/conffiles
  ${CMAKE_SOURCE_DIR}/packaging/debian/postinst ${CMAKE_SOURCE_DIR}/packaging/debian/prerm
  ${CMAKE_SOURCE_DIR}/packaging/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_GENERATOR DEB TGZ)
# Files below DESTDIR, so that the unit names the program as it will be.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
include(CPack)

# Debian wants a changelog. Its place follows the prefix, so that `make install` has none.
configure_file(packaging/debian/changelog.in ${CMAKE_BINARY_DIR}/packaging/changelog @ONLY)
install(CODE "
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    set(changelog \"\$ENV{DESTDIR}/usr/${share}/doc/plateau/changelog.gz\")
    execute_process(COMMAND gzip -9nc \"${CMAKE_BINARY_DIR}/packaging/changelog\" OUTPUT_FILE \"\${changelog}\"
      COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Installing: \${changelog}\")
  endif()
")
