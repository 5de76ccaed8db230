# SPDX-License-Identifier: Apache-2.0
# Builds tests/package/consumer as a user would (MODE subdirectory, installed or bare) and runs it.

set(consumer "${SOURCE}/tests/package/consumer")
file(REMOVE_RECURSE "${BINARY}")
file(MAKE_DIRECTORY "${BINARY}")

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${MODE}: failed (${result}): ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug)
if(MODE STREQUAL "bare")
  # A submodule and one -I, no CMake.
  step("${COMPILER}" -std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror "-I${SOURCE}/include"
    "${consumer}/main.cpp" "${consumer}/other.cpp" -o "${BINARY}/consumer")
elseif(MODE STREQUAL "subdirectory")
  step(${configure} -S "${SOURCE}/tests/package/subdirectory" -B "${BINARY}" "-DKVCACHE_ROOT=${SOURCE}" "-DCATCH_MAIN=${CATCH_MAIN}")
  step("${CMAKE_COMMAND}" --build "${BINARY}")
  step("${BINARY}/consumer_tests")
elseif(MODE STREQUAL "installed")
  step(${configure} -S "${SOURCE}" -B "${BINARY}/library" -DKVCACHE_BUILD_TESTS=OFF -DKVCACHE_BUILD_EXAMPLES=OFF
    -DKVCACHE_BUILD_BENCH=OFF)
  step("${CMAKE_COMMAND}" --install "${BINARY}/library" --prefix "${BINARY}/prefix")
  # The installed tree must stand without the one it came from.
  step(${configure} -S "${SOURCE}/tests/package/installed" -B "${BINARY}" "-DCMAKE_PREFIX_PATH=${BINARY}/prefix"
    -DKVCACHE_WANTED=${VERSION})
  step("${CMAKE_COMMAND}" --build "${BINARY}")
else()
  message(FATAL_ERROR "MODE is '${MODE}'; subdirectory, installed or bare is right")
endif()

step("${BINARY}/consumer")
if(NOT output STREQUAL "kvcache ${VERSION}\n")
  message(FATAL_ERROR "${MODE}: the consumer printed '${output}', 'kvcache ${VERSION}' is right")
endif()
message("${MODE}: ${output}")
