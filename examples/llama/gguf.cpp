// SPDX-License-Identifier: Apache-2.0
#include "gguf.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "gguf_cursor.hpp"
#include "gguf_format.hpp"
#include "printable.hpp"

namespace llama {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, low byte first");

namespace {

using namespace gguf_format;

constexpr std::uint64_t max_dims = 4;
constexpr std::uint64_t default_alignment = 32;
constexpr std::uint64_t min_alignment = 8;
constexpr std::uint64_t max_alignment = std::uint64_t{1} << 20;
constexpr std::uint64_t min_pair_bytes = 8 + 4 + 1;  // key length, type, a byte
constexpr std::uint64_t min_tensor_bytes =
  8 + 4 + 8 + 4 + 8;  // name length, dims, one dim, type, offset

std::string shape_text(std::span<std::uint64_t const> dims)
{
  std::string out = "{";
  for (std::uint64_t const d : dims) {
    out += (out.size() > 1 ? ", " : "") + std::to_string(d);
  }
  return out + "}";
}

}  // namespace

std::uint64_t block_elements(TensorType type)
{
  return facts_of(static_cast<std::uint32_t>(type))->elements;
}

std::uint64_t block_bytes(TensorType type)
{
  return facts_of(static_cast<std::uint32_t>(type))->bytes;
}

std::uint64_t Tensor::elements() const
{
  std::uint64_t product = 1;
  for (std::uint64_t const d : dims) {
    product *= d;  // cannot overflow: checked when the file was read
  }
  return product;
}

/// Reads the parts of a file in order into a `Gguf`.
class Gguf::Parser {
 public:
  Parser(Gguf& out, std::span<std::byte const> bytes) : out_(out), cursor_(bytes, out.name_) {}

  void run()
  {
    read_header();
    for (std::uint64_t i = 0; i < num_pairs_; ++i) {
      read_pair();
    }
    read_alignment();
    out_.tensors_.reserve(num_tensors_);
    offsets_.reserve(num_tensors_);
    for (std::uint64_t i = 0; i < num_tensors_; ++i) {
      read_tensor();
    }
    place_tensors();
  }

 private:
  void read_header()
  {
    std::byte const* const magic = cursor_.take(4, "the magic bytes");
    if (std::memcmp(magic, "GGUF", 4) != 0) {
      cursor_.fail("the file starts with " + quoted({reinterpret_cast<char const*>(magic), 4}) +
                   "; a GGUF file starts with 'GGUF'");
    }
    auto const version = cursor_.number<std::uint32_t>("the version");
    if (version != 2 && version != 3) {
      bool const swapped = version == 0x0200'0000U || version == 0x0300'0000U;
      cursor_.fail("the version is " + std::to_string(version) +
                   (swapped ? ", a big-endian file" : "") +
                   "; versions 2 and 3, little-endian, can be read");
    }
    num_tensors_ = cursor_.count("the tensor count", min_tensor_bytes);
    num_pairs_ = cursor_.count("the metadata count", min_pair_bytes);
  }

  void read_pair()
  {
    std::string_view const key = cursor_.string("a metadata key");
    std::string const field = "metadata " + quoted(key);
    Value value;
    value.type = read_kind(field);
    value.array = value.type == kind_array;
    if (value.array) {
      value.type = read_kind(field);
      if (value.type == kind_array) {
        cursor_.fail(field + " is an array of arrays; arrays hold numbers, bools or strings");
      }
      value.count = cursor_.count(field, value.type == kind_string ? 8 : kind_bytes[value.type]);
    }
    value.data = cursor_.here();
    if (value.type == kind_string) {
      for (std::uint64_t i = 0; i < value.count; ++i) {
        (void)cursor_.string(field);
      }
    } else {
      (void)cursor_.take(value.count * kind_bytes[value.type], field);
    }
    value.bytes = static_cast<std::size_t>(cursor_.here() - value.data);
    if (!out_.values_.emplace(key, value).second) {
      cursor_.fail(field + " is there twice; each key may appear once");
    }
  }

  std::uint32_t read_kind(std::string const& field)
  {
    auto const kind = cursor_.number<std::uint32_t>(field);
    if (kind >= num_kinds) {
      cursor_.fail(field + " has value type " + std::to_string(kind) + "; types are 0 to " +
                   std::to_string(num_kinds - 1));
    }
    return kind;
  }

  void read_alignment()
  {
    alignment_ = out_.integer("general.alignment").value_or(default_alignment);
    if (!std::has_single_bit(alignment_) || alignment_ < min_alignment ||
        alignment_ > max_alignment) {
      cursor_.fail("general.alignment is " + std::to_string(alignment_) +
                   "; it must be a power of two from " + std::to_string(min_alignment) + " to " +
                   std::to_string(max_alignment));
    }
  }

  void read_tensor()
  {
    std::string_view const name = cursor_.string("a tensor name");
    std::string const field = "tensor " + quoted(name);
    Tensor tensor;
    tensor.name = name;
    auto const num_dims = cursor_.number<std::uint32_t>(field);
    if (num_dims == 0 || num_dims > max_dims) {
      cursor_.fail(field + " has " + std::to_string(num_dims) + " dimensions; 1 to " +
                   std::to_string(max_dims) + " are right");
    }
    std::uint64_t elements = 1;
    bool overflow = false;
    for (std::uint32_t i = 0; i < num_dims; ++i) {
      tensor.dims.push_back(cursor_.number<std::uint64_t>(field));
      overflow = __builtin_mul_overflow(elements, tensor.dims.back(), &elements) || overflow;
    }
    auto const number = cursor_.number<std::uint32_t>(field);
    TypeFacts const* const facts = facts_of(number);
    if (facts == nullptr || facts->elements == 0) {
      cursor_.fail(field + " has type " +
                   (facts == nullptr ? "" : std::string(facts->name) + ", ") + "number " +
                   std::to_string(number) + "; this program reads " + std::string(readable_types));
    }
    tensor.type = static_cast<TensorType>(number);
    if (overflow || elements == 0 || elements > std::numeric_limits<std::uint64_t>::max() / 64) {
      cursor_.fail(field + " has shape " + shape_text(tensor.dims) +
                   "; every dimension must be at least 1 and the tensor must fit into the file");
    }
    if (tensor.dims[0] % facts->elements != 0) {
      cursor_.fail(field + " has " + std::to_string(tensor.dims[0]) + " numbers in a row; " +
                   std::string(facts->name) + " needs a multiple of " +
                   std::to_string(facts->elements));
    }
    tensor.bytes = elements / facts->elements * facts->bytes;
    auto const offset = cursor_.number<std::uint64_t>(field);
    if (offset % alignment_ != 0) {
      cursor_.fail(field + " has offset " + std::to_string(offset) + "; it must be a multiple of " +
                   std::to_string(alignment_));
    }
    offsets_.push_back(offset);
    if (!out_.index_.emplace(name, out_.tensors_.size()).second) {
      cursor_.fail(field + " is there twice; each name may appear once");
    }
    out_.tensors_.push_back(std::move(tensor));
  }

  void place_tensors()
  {
    std::uint64_t const start = (cursor_.at() + alignment_ - 1) / alignment_ * alignment_;
    std::uint64_t const room = start < cursor_.size() ? cursor_.size() - start : 0;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      Tensor& tensor = out_.tensors_[i];
      if (offsets_[i] > room || tensor.bytes > room - offsets_[i]) {
        cursor_.fail("tensor " + quoted(tensor.name) + " needs " + std::to_string(tensor.bytes) +
                     " bytes at offset " + std::to_string(offsets_[i]) + " of the " +
                     std::to_string(room) +
                     " bytes of tensor data; the file is cut short or lies about its sizes");
      }
      tensor.data = cursor_.begin() + start + offsets_[i];
    }
  }

  Gguf& out_;
  GgufCursor cursor_;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_pairs_ = 0;
  std::uint64_t alignment_ = default_alignment;
  std::vector<std::uint64_t> offsets_;  // of each tensor, from the start of the data
};

Gguf Gguf::from_bytes(std::span<std::byte const> bytes, std::string name)
{
  Gguf out(std::move(name));
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % min_alignment != 0) {
    throw Error(out.name_ + ": the bytes do not start at a multiple of 8");
  }
  Parser(out, bytes).run();
  return out;
}

Gguf Gguf::from_owned(std::vector<std::byte> bytes, std::string name)
{
  auto const kept = std::make_shared<std::vector<std::byte> const>(std::move(bytes));
  Gguf out = from_bytes(*kept, std::move(name));
  out.mapping_ = kept;
  return out;
}

Gguf Gguf::open(std::string const& path)
{
  auto const refuse = [&](std::string const& why) { throw Error(path + ": " + why); };
  int const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    refuse(std::string("the model cannot be opened: ") + std::strerror(errno));
  }
  struct stat facts = {};
  bool const known = ::fstat(file, &facts) == 0;
  bool const regular = known && S_ISREG(facts.st_mode) && facts.st_size > 0;
  auto const size = regular ? static_cast<std::size_t>(facts.st_size) : 0;
  void* const address =
    regular ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  int const error = errno;
  ::close(file);
  if (!regular) {
    refuse("this is no file with bytes in it; --model takes the path of a GGUF file");
  }
  if (address == MAP_FAILED) {
    refuse(std::string("the model cannot be mapped: ") + std::strerror(error));
  }
  std::shared_ptr<void const> mapping(address, [size](void* mapped) { ::munmap(mapped, size); });
  Gguf out = from_bytes({static_cast<std::byte const*>(address), size}, path);
  out.mapping_ = std::move(mapping);
  return out;
}

Tensor const* Gguf::find(std::string_view name) const
{
  auto const at = index_.find(name);
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

Tensor const& Gguf::need(std::string_view name, std::initializer_list<std::uint64_t> dims) const
{
  Tensor const* const tensor = find(name);
  if (tensor == nullptr) {
    throw Error(name_ + ": the file has no tensor " + quoted(name) + "; a Llama model has one");
  }
  if (dims.size() != 0 && !std::ranges::equal(dims, tensor->dims)) {
    throw Error(name_ + ": tensor " + quoted(name) + " has shape " + shape_text(tensor->dims) +
                "; by the metadata it is " + shape_text({dims.begin(), dims.size()}));
  }
  return *tensor;
}

}  // namespace llama
