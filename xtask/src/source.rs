//! A Rust file as the rules see it: line by line, code and comment apart, strings blanked, test code marked.
//! It is a scanner, not a parser: it knows comments, strings, character literals and braces, no grammar.

/// One line of a source file.
#[derive(Debug, Default, Clone)]
pub(crate) struct Line {
    /// The code with comments removed and the inside of strings and characters blanked.
    pub(crate) code: String,
    /// The text of the comments on this line.
    pub(crate) comment: String,
    /// Whether it belongs to an item under `#[cfg(test)]` or `#[cfg(weir_bugs)]`: no release has it.
    pub(crate) test: bool,
}

/// A function outside tests, from its `fn` to its closing brace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// 1-based line of the `fn`.
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// A scanned source file.
pub(crate) struct Source {
    pub(crate) lines: Vec<Line>,
}

impl Source {
    /// Scans a whole file. Text that is not Rust gives some lines all the same, and no error.
    pub(crate) fn scan(text: &str) -> Self {
        let mut lines = Scanner::default().run(text);
        mark_tests(&mut lines);
        Self { lines }
    }

    /// Lines of code outside tests, with their 1-based numbers.
    pub(crate) fn production(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(|(_, line)| !line.test).map(|(index, line)| (index + 1, line))
    }

    /// The functions outside tests that have a body.
    pub(crate) fn functions(&self) -> Vec<Function> {
        self.production()
            .filter_map(|(number, line)| {
                let name = function_name(&line.code)?;
                let end = self.end_of_item(number - 1)?;
                Some(Function { name, line: number, lines: end + 2 - number })
            })
            .collect()
    }

    /// Index of the line where the body that opens at or after `start` closes; `None` for an item without a body.
    fn end_of_item(&self, start: usize) -> Option<usize> {
        let mut braces = 0_usize;
        let mut brackets = 0_usize;
        for (index, line) in self.lines.iter().enumerate().skip(start) {
            for letter in line.code.chars() {
                match letter {
                    '{' => braces += 1,
                    '}' if braces <= 1 => return (braces == 1).then_some(index),
                    '}' => braces -= 1,
                    '(' | '[' => brackets += 1,
                    ')' | ']' => brackets = brackets.saturating_sub(1),
                    ';' if braces == 0 && brackets == 0 => return None,
                    _ => {}
                }
            }
        }
        None
    }
}

/// Whether `word` stands in `code` as a word of its own: no letter, digit or underscore touches it.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let inside = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(word).any(|(at, found)| {
        let before = code[..at].chars().next_back();
        let after = code[at + found.len()..].chars().next();
        let open = word.starts_with(|letter: char| !inside(letter)) || !before.is_some_and(inside);
        let close = word.ends_with(|letter: char| !inside(letter)) || !after.is_some_and(inside);
        open && close
    })
}

fn function_name(code: &str) -> Option<String> {
    let trimmed = code.trim_start();
    let at = if trimmed.starts_with("fn ") { 0 } else { trimmed.find(" fn ")? + 1 };
    let modifiers = ["pub", "const", "async", "unsafe", "extern", "\"\"", "\" \"", "default"];
    let before = trimmed[..at].split_whitespace();
    let only_modifiers = before.into_iter().all(|word| {
        modifiers.contains(&word) || word.starts_with("pub(") || word.ends_with(')') || word.starts_with('"')
    });
    let name: String =
        trimmed[at + 3..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    (only_modifiers && !name.is_empty()).then_some(name)
}

/// The attributes of items that no release has: tests, and what switches planted bugs on.
const ABSENT: [&str; 3] = ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(weir_bugs)]"];

/// Marks every item that follows one of [`ABSENT`], from the attribute to its closing brace or semicolon.
fn mark_tests(lines: &mut [Line]) {
    let mut index = 0;
    while index < lines.len() {
        let code = lines[index].code.trim_start();
        let file_wide = code.starts_with("#![cfg(test)]");
        let Some(rest) = ABSENT.iter().find_map(|attribute| code.strip_prefix(attribute)) else {
            index += 1;
            if file_wide {
                lines.iter_mut().for_each(|line| line.test = true);
                return;
            }
            continue;
        };
        let offset = lines[index].code.len() - rest.len();
        let end = end_after(lines, index, offset);
        for line in &mut lines[index..=end] {
            line.test = true;
        }
        index = end + 1;
    }
}

fn end_after(lines: &[Line], start: usize, offset: usize) -> usize {
    let mut depth = 0_usize;
    for (index, line) in lines.iter().enumerate().skip(start) {
        let from = if index == start { offset } else { 0 };
        for letter in line.code[from..].chars() {
            match letter {
                '{' => depth += 1,
                '}' if depth <= 1 => return index,
                '}' => depth -= 1,
                ';' if depth == 0 => return index,
                _ => {}
            }
        }
    }
    lines.len() - 1
}

/// Where the scanner stands between two characters.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Code,
    LineComment,
    BlockComment(usize),
    Text,
    RawText(usize),
}

#[derive(Default)]
struct Scanner {
    place: Place,
    line: Line,
    lines: Vec<Line>,
}

impl Scanner {
    fn run(mut self, text: &str) -> Vec<Line> {
        let letters: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < letters.len() {
            if letters[at] == '\n' {
                if self.place == Place::LineComment {
                    self.place = Place::Code;
                }
                self.lines.push(std::mem::take(&mut self.line));
                at += 1;
            } else {
                at += self.step(&letters[at..]);
            }
        }
        if !self.line.code.is_empty() || !self.line.comment.is_empty() {
            self.lines.push(self.line);
        }
        self.lines
    }

    /// Takes what stands at the front of `rest` and says how many characters that was.
    fn step(&mut self, rest: &[char]) -> usize {
        match self.place {
            Place::Code => self.in_code(rest),
            Place::LineComment => {
                self.line.comment.push(rest[0]);
                1
            }
            Place::BlockComment(depth) => self.in_block_comment(rest, depth),
            Place::Text => self.in_text(rest),
            Place::RawText(hashes) => self.in_raw_text(rest, hashes),
        }
    }

    fn in_code(&mut self, rest: &[char]) -> usize {
        match (rest[0], rest.get(1)) {
            ('/', Some('/')) => self.enter(Place::LineComment, 2),
            ('/', Some('*')) => self.enter(Place::BlockComment(1), 2),
            ('"', _) => {
                self.line.code.push('"');
                self.enter(Place::Text, 1)
            }
            ('r', Some('"' | '#')) if !self.in_word() => self.raw_text_opens(rest),
            ('\'', _) => self.character_or_lifetime(rest),
            (letter, _) => {
                self.line.code.push(letter);
                1
            }
        }
    }

    fn enter(&mut self, place: Place, taken: usize) -> usize {
        self.place = place;
        taken
    }

    /// Whether the code so far ends inside a name; `br"` and `cr"` open raw strings too.
    fn in_word(&self) -> bool {
        let tail = self.line.code.trim_end_matches(['b', 'c']);
        tail.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
    }

    fn raw_text_opens(&mut self, rest: &[char]) -> usize {
        let hashes = rest[1..].iter().take_while(|letter| **letter == '#').count();
        if rest.get(1 + hashes) != Some(&'"') {
            self.line.code.push(rest[0]);
            return 1;
        }
        self.line.code.push('"');
        self.enter(Place::RawText(hashes), hashes + 2)
    }

    fn character_or_lifetime(&mut self, rest: &[char]) -> usize {
        self.line.code.push('\'');
        if rest.get(1) == Some(&'\\') {
            let close = rest.iter().skip(3).position(|letter| *letter == '\'');
            self.line.code.push('\'');
            return close.map_or(rest.len(), |found| found + 4);
        }
        if rest.get(2) == Some(&'\'') {
            self.line.code.push('\'');
            return 3;
        }
        1
    }

    fn in_block_comment(&mut self, rest: &[char], depth: usize) -> usize {
        match (rest[0], rest.get(1)) {
            ('*', Some('/')) if depth == 1 => self.enter(Place::Code, 2),
            ('*', Some('/')) => self.enter(Place::BlockComment(depth - 1), 2),
            ('/', Some('*')) => self.enter(Place::BlockComment(depth + 1), 2),
            (letter, _) => {
                self.line.comment.push(letter);
                1
            }
        }
    }

    fn in_text(&mut self, rest: &[char]) -> usize {
        match (rest[0], rest.get(1)) {
            // A string may go on over the line's end; the line break itself is for `run`.
            ('\\', Some('\n')) => 1,
            ('\\', Some(_)) => 2,
            ('"', _) => {
                self.line.code.push('"');
                self.enter(Place::Code, 1)
            }
            _ => 1,
        }
    }

    fn in_raw_text(&mut self, rest: &[char], hashes: usize) -> usize {
        let closes = rest[0] == '"'
            && rest[1..].iter().take(hashes).filter(|letter| **letter == '#').count() == hashes;
        if !closes {
            return 1;
        }
        self.line.code.push('"');
        self.enter(Place::Code, hashes + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        Source::scan(text).lines.into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(code("let a = \"unsafe { // no\"; // unsafe\n"), ["let a = \"\"; "]);
        assert_eq!(code("a /* b /* c */ d\n e */ f"), ["a ", " f"]);
        assert_eq!(code("br#\"x \" y\"# z"), ["b\"\" z"]);
        assert_eq!(code("'\"' + '\\'' + 'a"), ["'' + '' + 'a"]);
        assert_eq!(code("\"a\\\"b\\\n c\" d"), ["\"", "\" d"]);
    }

    #[test]
    fn comments_are_kept_apart() {
        let source = Source::scan("x(); // SAFETY: fine\n/* more */ y();");
        assert_eq!(source.lines[0].comment, " SAFETY: fine");
        assert_eq!(source.lines[1].comment, " more ");
        assert_eq!(source.lines[1].code, " y();");
    }

    #[test]
    fn test_items_end_where_their_braces_end() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(test)] use x::y;\nfn d() {}\n#[cfg(weir_bugs)]\nfn e() {}";
        let marks: Vec<bool> = Source::scan(text).lines.iter().map(|line| line.test).collect();
        assert_eq!(marks, [false, true, true, true, true, false, true, false, true, true]);
    }

    #[test]
    fn functions_have_names_and_lengths() {
        let text = "pub(crate) const fn a() -> [u8; 2] {\n {\n }\n}\ntrait T { fn no(&self); }\nfn b() { fnord() }\n";
        let found = Source::scan(text).functions();
        let seen: Vec<(&str, usize, usize)> =
            found.iter().map(|function| (function.name.as_str(), function.line, function.lines)).collect();
        assert_eq!(seen, [("a", 1, 4), ("b", 6, 1)]);
    }

    #[test]
    fn words_do_not_match_inside_other_words() {
        assert!(has_word("x: Mutex<u8>", "Mutex"));
        assert!(!has_word("FastMutexed", "Mutex"));
        assert!(has_word("println!(\"\")", "println!"));
        assert!(!has_word("unsafe_code", "unsafe"));
    }
}
