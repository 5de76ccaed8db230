# SPDX-License-Identifier: Apache-2.0
# kvcache_unite(RESULT NAME FILES...): the FILES of tests/, KVCACHE_TEST_BATCH of them to a translation unit.
#
# Nine tenths of what the compiler does for a test is the library and the standard library, the same for every test of a
# folder; together they cost it once. A unit includes what its tests include, and then every test in a namespace of its
# own, so that helpers of one name do not meet:
#
#   #include "support/catch.hpp"
#   #include <vector>
#   namespace control_step_test {
#   #include ".../tests/control/step_test.cpp"
#   }
#
# What must stand outside any namespace (operator new), or must come before the includes (a #define), stays a unit of its
# own, unchanged. One thing differs: a helper `open` in a test now hides the `open` of a namespace that the test uses; say
# `using kvcache_test::open;` beside it.

set(KVCACHE_TEST_BATCH 12 CACHE STRING "How many test files make a translation unit; 1: every file is one")

function(kvcache_unite result name)
  set(units "")
  set(together "")
  foreach(file IN LISTS ARGN)
    file(STRINGS "${file}" alone REGEX "^#(define|undef)|operator (new|delete)|^namespace [a-z]|^template <>|^extern \"C\"" LIMIT_COUNT 1)
    if(alone OR KVCACHE_TEST_BATCH LESS_EQUAL 1)
      list(APPEND units "${file}")
    else()
      list(APPEND together "${file}")
    endif()
  endforeach()

  list(LENGTH together left)
  if(left EQUAL 1)
    list(APPEND units "${together}")
    set(left 0)
  endif()
  math(EXPR batches "(${left} + ${KVCACHE_TEST_BATCH} - 1) / ${KVCACHE_TEST_BATCH}")
  set(batch 0)
  while(left GREATER 0)
    math(EXPR take "(${left} + ${batches} - 1) / ${batches}")  # of equal size, give or take one
    list(SUBLIST together 0 ${take} files)
    list(REMOVE_DUPLICATES files)
    math(EXPR batches "${batches} - 1")
    math(EXPR batch "${batch} + 1")

    set(includes "")
    set(bodies "")
    foreach(file IN LISTS files)
      get_filename_component(folder "${file}" DIRECTORY)
      file(STRINGS "${file}" lines REGEX "^#include ")
      foreach(line IN LISTS lines)
        string(REGEX REPLACE "^#include ([<\"])([^>\"]+).*" "\\2" header "${line}")
        if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${header}")
          set(line "#include \"${folder}/${header}\"")  # beside the test
        endif()
        list(APPEND includes "${line}")
      endforeach()
      string(MAKE_C_IDENTIFIER "${file}" space)
      string(REGEX REPLACE "_cpp$" "" space "${space}")
      string(APPEND bodies "namespace ${space} {\n#include \"${CMAKE_CURRENT_SOURCE_DIR}/${file}\"\n}\n")
      # An include that a test gains must reach the top of its unit.
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    endforeach()
    list(REMOVE_DUPLICATES includes)
    list(JOIN includes "\n" includes)
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/units/${name}_${batch}.cpp")
    # A test's own code is checks, the slowest of all to optimise; what it includes is as the flags say.
    set(pragma "#if defined(__clang__) && !defined(NDEBUG)\n#pragma clang optimize off\n#endif")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "@includes@\n@pragma@\n@bodies@" @ONLY)
    list(APPEND units "${unit}")

    list(LENGTH together left)
    if(take LESS left)
      list(SUBLIST together ${take} -1 together)
    else()
      set(together "")
    endif()
    list(LENGTH together left)
  endwhile()
  set(${result} "${units}" PARENT_SCOPE)
endfunction()
