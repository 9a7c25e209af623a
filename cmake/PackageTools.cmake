# Read by cpack: without these tools it would write packages that depend on nothing, with no more than a warning.
if(CPACK_GENERATOR STREQUAL "DEB")
  foreach(tool IN ITEMS dpkg-shlibdeps file)
    find_program(path_of_${tool} ${tool})
    if(NOT path_of_${tool})
      message(FATAL_ERROR "${tool} is missing, which Debian packages are made with; scripts/setup.sh installs it "
        "(packages dpkg-dev and file)")
    endif()
  endforeach()
endif()
