// Cluster files for tests: written to a folder of their own, read, and faults as text in which the file is called FILE.
#pragma once
#include "cluster/configuration.hpp"
#include "tests/support/process.hpp"
#include <boost/test/unit_test.hpp>

namespace cluster_test {

struct written_cluster_file {
  test_support::temporary_folder folder;
  const std::string root = TROUPE_SOURCE_DIR, default_model = root + "/models/tiny-v41",
                    loopback_example = root + "/configs/loopback-1p2d.toml",
                    large_example = root + "/configs/prefill4-decode64.toml";

  static troupe::configuration_reading read(const troupe::configuration_sources& sources) {
    return troupe::read_configuration(sources);
  }
  troupe::configuration_reading read_text(const std::string& text, std::vector<std::string> set = {},
                                          troupe::environment_map environment = {}) const {
    test_support::write_text(folder / "cluster.toml", text);
    return read({folder / "cluster.toml", std::move(set), std::move(environment), default_model});
  }

  // The smallest cluster: one node, one group. Comes behind the tables that a test is about, so that their lines are
  // the first ones.
  static std::string small(const std::string& node = "n0") {
    return "[[node]]\nname = \"" + node + "\"\nhost = \"127.0.0.1\"\n[[worker_group]]\nname = \"all\"\n";
  }

  std::string texts(const troupe::configuration_reading& r) const {
    std::string all;
    for (const troupe::config_error& e : r.faults)
      all += std::string(e.what()) + "\n";
    const std::string file = folder / "cluster.toml";
    for (std::size_t at; (at = all.find(file)) != all.npos;)
      all.replace(at, file.size(), "FILE");
    return all;
  }
  troupe::cluster_configuration correct(const std::string& text) const {
    const auto r = read_text(text);
    BOOST_TEST(texts(r) == "");
    return r.configuration;
  }
  // These tables before the smallest cluster give this one fault.
  void refused(const std::string& tables, const std::string& text, bool with_cluster = true) const {
    if (with_cluster)
      BOOST_TEST(texts(read_text(tables + small())) == text + "\n");
    else
      BOOST_TEST(texts(read_text(tables)).starts_with(text + "\n"));
  }
  void refused_alone(const std::string& file, const std::string& text) const {
    BOOST_TEST(texts(read_text(file)) == text + "\n");
  }
};

} // namespace cluster_test
