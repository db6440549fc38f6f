//! docs/pgpool.md, made from the table.

use std::fmt::Write as _;

use crate::fate::Verdict;
use crate::table::TABLE;

const INTRODUCTION: &str = "\
# From pgpool-II to Weir

`weir import` converts a configuration of pgpool-II and lists what became of each of its settings, with file and line:

```sh
weir import /etc/pgpool2/pgpool.conf --output weir.ini --pool-hba /etc/pgpool2/pool_hba.conf --pool-passwd /etc/pgpool2/pool_passwd
weir check weir.ini
```

- The entry `*` of [databases] has all backends, so that clients reach any database, as through pgpool-II. In streaming replication mode its connections go to the primary, and after a
  failover to the new one ([failover.md](failover.md)). Weir promotes no server and moves no address: that is a manager of failovers' (Patroni, repmgr) and keepalived's.
- Pools are as large as the children's were, and `pool_mode = session` keeps a server connection for a client as a child does. Comments in the file explain the figures and what
  `pool_mode = transaction` would save.
- `--pool-hba` copies the rules to `weir_hba.conf` beside the output. Where Weir does not take a line (`pam`, host names, a file `@names` that is not beside the copy), the logins that it matches are rejected, so that no later line lets them in. `trust` lets in users whom `auth_file` or `auth_query` knows.
- `--pool-passwd` writes `userlist.txt` (mode 0600) beside the output: md5 and SCRAM secrets and plain passwords. AES ones can be read by pgpool-II alone; the list names their lines. Give the file to the user that Weir runs as.
- Without `--output` the configuration goes to standard output and the list to standard error. A file that is there already is kept unless `--force` is given.
- Unknown settings are listed, and so are values that make no sense, with what is done instead. A line that cannot be read, or a file without a backend, is an error, and nothing is written.

| what holds | test |
|---|---|
| a converted cluster starts, and clients are served on its primary | `import_pgpool::a_cluster_of_pgpool_becomes_one_of_weir` |
| `weir check` takes whatever is written | `import::probe::mutated_configurations_hold` |
| each equivalent of the tables is written | `import::each_equivalent_is_written` |
| a rule that Weir does not take admits no client by a later one | `import::rules::a_line_that_weir_does_not_take_lets_nobody_in_by_a_later_one`, `import::probe::mutated_rules_hold` |
| no secret is shown | `import::unknown_settings_and_passwords_are_listed_without_values`, `import::secrets::others_are_listed_with_their_lines_and_without_their_secrets` |
| no file is replaced unasked | `import_pgpool::what_is_there_already_is_kept` |
| a file that cannot be read is named with its line | `import_pgpool::a_file_that_cannot_be_read_is_named_with_its_line` |

The tables below have pgpool-II's settings of versions 4.3 to 4.6; `N` is the number of a node, `[N]` one that may be missing. `weir --generate pgpool` makes this page from the table that
`weir import` works by.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(INTRODUCTION);
    for group in TABLE {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n## {}\n\n| pgpool-II | Weir | |\n|---|---|---|\n", group.name);
        for setting in group.settings {
            let verdict = setting.verdict();
            let (word, sentence) = match verdict {
                Verdict::Equivalent { settings, how } => {
                    let names: Vec<String> = settings.iter().map(|name| format!("`{name}`")).collect();
                    (names.join(", "), how)
                }
                Verdict::Elsewhere(party, sentence) => (party.name().to_owned(), sentence),
                Verdict::NotSupported(sentence) => ("not supported".to_owned(), sentence),
                Verdict::NotNeeded(sentence) => ("not needed".to_owned(), sentence),
            };
            let _ = writeln!(text, "| `{}` | {word} | {sentence} |", setting.spelled());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_this_one() {
        let docs = include_str!("../../../docs/pgpool.md");
        assert!(docs == page(), "docs/pgpool.md is old: weir --generate pgpool > docs/pgpool.md");
    }

    #[test]
    fn every_setting_has_a_line() {
        let page = page();
        let lines = page.lines().skip_while(|line| !line.starts_with("## "));
        let lines = lines.filter(|line| line.starts_with("| `")).count();
        assert_eq!(lines, TABLE.iter().map(|group| group.settings.len()).sum::<usize>());
    }
}
