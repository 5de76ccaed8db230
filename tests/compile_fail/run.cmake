# SPDX-License-Identifier: Apache-2.0
# Compiles SOURCE, which must fail, and whose *first* error must contain the text of its line `// expect: ...`.
# A line `// flags: ...` gives the compiler more.
# A file with `// expect: compiles` must compile: a control that shows the flags and the includes are right.

file(STRINGS "${SOURCE}" expect REGEX "^// expect: ")
list(LENGTH expect count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${SOURCE} has ${count} lines `// expect: ...`, one is right")
endif()
string(REPLACE "// expect: " "" expect "${expect}")

file(STRINGS "${SOURCE}" flags REGEX "^// flags: ")
string(REPLACE "// flags: " "" flags "${flags}")

execute_process(COMMAND "${COMPILER}" -std=c++20 ${flags} -fsyntax-only -fno-diagnostics-color "-I${INCLUDE}" "${SOURCE}"
  RESULT_VARIABLE result ERROR_VARIABLE output OUTPUT_QUIET)

if(expect STREQUAL "compiles")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${SOURCE} must compile:\n${output}")
  endif()
  return()
endif()

if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, but it must be refused with: ${expect}")
endif()
string(REGEX MATCH "error: [^\n]*" first "${output}")
string(FIND "${first}" "${expect}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${SOURCE}: the first error is not our sentence.\nexpected: ${expect}\n${first}\n\n${output}")
endif()
message("${first}")
