// read_pages.cpp: an engine in C++17. Pins the resident prefix of a chain of keys and sums the bytes of its pages
// in place.
//
//   read_pages unix:/path/to/socket KEY_IN_HEX...
//
// Prints one line a page, "tokens sum"; exit status 3 = an error, which it names.
#include <nexuskv.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

class Client {
 public:
  explicit Client(const char *address) { check(nx_client_open(&client_, address, 5000)); }
  ~Client() { nx_client_close(client_); }
  Client(const Client &) = delete;
  Client &operator=(const Client &) = delete;

  nx_client *get() const { return client_; }

  std::int64_t check(std::int64_t code) const {
    if (code >= 0) return code;
    std::string reason = nx_client_reason(client_);
    throw std::runtime_error(reason.empty() ? nx_error(static_cast<int>(code)) : reason);
  }

 private:
  nx_client *client_ = nullptr;
};

// Pinned pages; the pins end with the object.
class Hit {
 public:
  Hit(const Client &client, const std::vector<std::uint8_t> &keys)
      : client_(client), handles_(keys.size() / NX_KEY_BYTES) {
    auto pinned = client.check(nx_client_pin(client.get(), keys.data(), handles_.size(), handles_.data()));
    handles_.resize(static_cast<std::size_t>(pinned));
  }
  ~Hit() { nx_client_unpin(client_.get(), handles_.data(), handles_.size()); }
  Hit(const Hit &) = delete;
  Hit &operator=(const Hit &) = delete;

  const std::vector<nx_handle> &handles() const { return handles_; }

  std::uint64_t sum(const nx_handle &handle) const {
    auto page = static_cast<const std::uint8_t *>(nx_client_page(client_.get(), &handle));
    return std::accumulate(page, page + handle.length, std::uint64_t{0});
  }

 private:
  const Client &client_;
  std::vector<nx_handle> handles_;
};

void append_key(std::vector<std::uint8_t> &keys, const std::string &hex) {
  if (hex.size() != 2 * NX_KEY_BYTES) throw std::invalid_argument("a key has 64 hexadecimal digits");
  for (std::size_t i = 0; i < hex.size(); i += 2)
    keys.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
}

}  // namespace

int main(int argc, char **argv) {
  try {
    std::vector<std::uint8_t> keys;
    for (int i = 2; i < argc; i++) append_key(keys, argv[i]);
    Client client(argc > 1 ? argv[1] : nullptr);
    Hit hit(client, keys);
    for (const nx_handle &handle : hit.handles()) std::cout << handle.tokens << ' ' << hit.sum(handle) << '\n';
    return 0;
  } catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
}
