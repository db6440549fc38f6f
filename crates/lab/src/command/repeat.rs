//! The words of a command as the record keeps them: with the seed that repeats the very same order, without passwords, and
//! without the result's directory, which is taken when it is repeated.

use std::path::Path;

/// The command with its seed, so that it repeats the very same order, and with the Weir that it has measured, where its words do not
/// name it; without passwords and without `--out`.
pub(super) fn repeatable(words: Vec<String>, seed: u64, weir: Option<&Path>) -> Vec<String> {
    let has = |name: &str| words.iter().any(|word| word == name || word.starts_with(&format!("{name}=")));
    let (has_seed, has_weir) = (has("--seed"), has("--weir"));
    let mut words: Vec<String> = without_out(words).into_iter().map(|word| without_password(&word)).collect();
    if !has_seed {
        words.extend(["--seed".to_owned(), seed.to_string()]);
    }
    if let Some(weir) = weir.filter(|_| !has_weir) {
        words.extend(["--weir".to_owned(), weir.display().to_string()]);
    }
    words
}

fn without_out(words: Vec<String>) -> Vec<String> {
    let mut is_value = false;
    let is_kept = |word: &String| {
        let is_dropped = std::mem::replace(&mut is_value, word == "--out") || word == "--out";
        !is_dropped && !word.starts_with("--out=")
    };
    words.into_iter().filter(is_kept).collect()
}

/// A URI without the password in it; another word as it is.
fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((login, host)) => format!("{}@{host}", login.split(':').next().unwrap_or_default()),
        None => authority.to_owned(),
    };
    let Some((path, query)) = tail.split_once('?') else { return format!("{scheme}://{authority}{tail}") };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("password=")).collect();
    let mark = if kept.is_empty() { "" } else { "?" };
    format!("{scheme}://{authority}{path}{mark}{}", kept.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_kept() {
        for (word, kept) in [
            ("postgresql://u:p@h:1/d?sslmode=require", "postgresql://u@h:1/d?sslmode=require"),
            ("a=postgres://u:p%40x@h/d?password=y&x=1", "a=postgres://u@h/d?x=1"),
            ("postgres://h/d?password=y", "postgres://h/d"),
            ("postgres://u:a@b@h", "postgres://u@h"),
            ("--clients", "--clients"),
        ] {
            assert_eq!(without_password(word), kept);
        }
    }

    #[test]
    fn a_command_repeats_its_order() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(repeatable(words("weir-bench sweep"), 7, None), words("weir-bench sweep --seed 7"));
        assert_eq!(
            repeatable(words("weir-bench sweep --seed=3"), 3, None),
            words("weir-bench sweep --seed=3")
        );
        let own = Some(Path::new("/own/weir"));
        let named = words("weir-bench sweep --seed=3 --weir /own/weir");
        assert_eq!(repeatable(words("weir-bench sweep --seed=3"), 3, own), named);
        assert_eq!(repeatable(named.clone(), 3, own), named);
    }

    #[test]
    fn a_command_that_is_repeated_gets_a_directory_of_its_own() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let repeated = words("weir-bench sweep --quick --seed 7");
        for typed in ["weir-bench sweep --out a --quick", "weir-bench sweep --quick --out=a/b"] {
            assert_eq!(repeatable(words(typed), 7, None), repeated, "{typed}");
        }
    }
}
