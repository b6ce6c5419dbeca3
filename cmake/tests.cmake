# troupe_tests(<folder> [LIBS ...] [LABELS ...] [TIMEOUT s]): one Boost.Test program from tests/<folder>/**/*_test.cpp and one
# CTest entry per suite, so that a crash or a time-out hides no other suite. Suites are read from the sources: a suite that
# exists runs, without a second list to keep.
add_library(troupe_test_main OBJECT tests/main.cpp)
target_compile_definitions(troupe_test_main PUBLIC BOOST_TEST_DYN_LINK
  TROUPE_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/tests/data" TROUPE_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(troupe_test_main PUBLIC troupe_flags Boost::unit_test_framework)

function(troupe_tests folder)
  cmake_parse_arguments(arg "" "TIMEOUT;LABELS" "LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(TROUPE_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 3")
  endif()
  string(REPLACE "/" "_" target "${folder}_test")
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE troupe_test_main ${arg_LIBS})
  # The code of tests itself: -O1 without checks of its arithmetic takes half the time to compile. What it tests is compiled
  # like everything else.
  target_compile_options(${target} PRIVATE -O1)
  if(TROUPE_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined --param=asan-instrumentation-with-call-threshold=0)
  endif()
  # a third of the time that most test files take
  target_precompile_headers(${target} PRIVATE <boost/test/unit_test.hpp> <algorithm> <functional> <map> <random> <string> <vector>)
  foreach(source ${sources})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} lines REGEX "^BOOST_(AUTO|FIXTURE)_TEST_SUITE\\(")
    if(NOT lines)
      message(FATAL_ERROR "${source}: no BOOST_AUTO_TEST_SUITE, its cases would not run")
    endif()
    foreach(line ${lines})
      string(REGEX REPLACE "^BOOST_(AUTO|FIXTURE)_TEST_SUITE\\(([A-Za-z0-9_]+).*" "\\2" suite "${line}")
      add_test(NAME ${target}.${suite} COMMAND ${target} --run_test=${suite} --color_output=no --catch_system_errors=no)
      set_tests_properties(${target}.${suite} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${folder};${arg_LABELS}")
    endforeach()
  endforeach()
endfunction()
