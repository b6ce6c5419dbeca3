// Lines in and out of files, pipes and terminals. Both classes belong to one thread.
#pragma once
#include "runtime/base/result.hpp"
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace troupe {

// A file descriptor with its name for messages; closes it unless it is one of the standard streams.
class file_handle {
public:
  file_handle(int fd, std::string name, bool owned) : fd_(fd), name_(std::move(name)), owned_(owned) {}
  file_handle(file_handle&& other) noexcept;
  file_handle& operator=(file_handle&&) = delete;
  ~file_handle();

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }
  bool is_regular() const;

private:
  int fd_;
  std::string name_;
  bool owned_;
};

// "-" is standard input or output. All throw config_error. An output file is created if it does not exist, keeps what
// it holds, and is locked against a second process until it is closed.
file_handle open_input(const std::string& path);
file_handle open_output(const std::string& path);
// The same, emptied. Refuses to empty the file that `input` reads.
file_handle open_output_anew(const std::string& path, const file_handle& input);

void check_distinct(const file_handle& input, const file_handle& output);
// For a file that is replaced by rename at the end of a run: throws config_error if `path` exists and is no regular
// file (a device node would be lost) or is the file behind one of `others`, or if its folder takes no new file.
void check_replaceable(const std::string& path, std::initializer_list<const file_handle*> others);

// Gives closed standard streams a descriptor on which reading (0) or writing (1) fails; what goes to a closed 2 is
// dropped. Else the next opened file, for example OUT, would get the number 2 and the diagnostics with it.
void occupy_standard_streams();

inline constexpr std::size_t max_line_bytes = std::size_t{64} << 20;

class line_reader {
public:
  explicit line_reader(file_handle input, std::size_t limit = max_line_bytes)
      : input_(std::move(input)), limit_(limit) {}

  enum class state { line, too_long, waiting, end, failed };
  // Never blocks: `waiting` means that poll(fd()) tells when to ask again. Sets line (without the line feed) for
  // `line`. `too_long`: a line above the limit was skipped. `failed`: the system refused to read; see failure().
  state next(std::string& line);

  int fd() const { return input_.fd(); }
  const file_handle& file() const { return input_; }
  std::int64_t line_number() const { return line_number_; } // of the line that next gave last; the first is 1
  const std::string& failure() const { return failure_; }

private:
  bool fill(); // false: nothing to read now

  file_handle input_;
  std::size_t limit_; // bytes of a line
  std::string buffer_;
  std::size_t start_ = 0, scanned_ = 0; // of the unread part; how far it has no line feed
  bool ended_ = false, skipping_ = false;
  std::int64_t line_number_ = 0;
  std::string failure_;
};

// Every line goes out with one write(2); what a full disk lets through only in part is taken back, so that a file never
// holds a torn line.
class line_writer {
public:
  explicit line_writer(file_handle output);

  // Failure ("write_failed") names the file and the system's reason; the file holds what it held before.
  status write_line(std::string line); // adds the line feed
  status write_text(std::string_view text);
  // Reports what the system only says late; for regular files also waits for the disk.
  status finish();

  const file_handle& file() const { return output_; }

private:
  error failure(const std::string& why) const;

  file_handle output_;
  bool regular_;
};

} // namespace troupe
