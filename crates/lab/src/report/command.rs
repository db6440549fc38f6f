//! A command line as a shell reads it, with what a shell would not take literally in quotes.

/// The words of a command in one line that can be pasted into a POSIX shell.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<String>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=/.,:@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_would_read_the_same_words() {
        let words =
            ["weir-bench", "--script=a b.sql", "", "it's", "$HOME", "postgres://u@h:1/d"].map(str::to_owned);
        assert_eq!(line(&words), "weir-bench '--script=a b.sql' '' 'it'\\''s' '$HOME' postgres://u@h:1/d");
    }
}
