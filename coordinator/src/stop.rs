//! Finds stop strings in a text that grows piece by piece, wherever the pieces begin and end.
//!
//! Works byte by byte: a valid string begins and ends between characters, so a match of its bytes
//! is a match of its characters. Holds back what may still become a stop string, and no more. Pure;
//! knows nothing of tokens and requests.

/// The strings to look for.
#[derive(Debug, Default)]
pub(crate) struct StopStrings(Vec<Pattern>);

/// One string, prepared so that a text is read once, however it repeats itself (Knuth, Morris and
/// Pratt).
#[derive(Debug)]
struct Pattern {
    text: String,
    /// Of the string's first `i + 1` bytes: the longest proper suffix that the string begins with.
    fallbacks: Vec<usize>,
}

impl StopStrings {
    /// Looks for `strings`, none of which is empty.
    pub(crate) fn new(strings: Vec<String>) -> Self {
        Self(strings.into_iter().map(Pattern::new).collect())
    }

    /// The strings.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|pattern| pattern.text.as_str())
    }
}

impl Pattern {
    fn new(text: String) -> Self {
        let mut pattern = Self {
            fallbacks: vec![0; text.len().min(1)],
            text,
        };
        let mut matched = 0;
        for at in 1..pattern.text.len() {
            matched = pattern.step(matched, pattern.text.as_bytes()[at]);
            pattern.fallbacks.push(matched);
        }
        pattern
    }

    /// How much of the string the text ends with once `byte` follows, where it ended with the first
    /// `matched` bytes. Less than all of them.
    fn step(&self, mut matched: usize, byte: u8) -> usize {
        while self.text.as_bytes()[matched] != byte {
            if matched == 0 {
                return 0;
            }
            matched = self.fallbacks[matched - 1];
        }
        matched + 1
    }
}

/// How far a text is read.
#[derive(Debug, Default)]
pub(crate) struct StopMatcher {
    /// How much of each string the text ends with.
    matched: Vec<usize>,
    /// The end of the text that may still become a stop string.
    held: String,
}

/// What became certain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Searched {
    /// More text. After it, where a stop string was found, nothing.
    pub(crate) text: String,
    /// The stop string that was found.
    pub(crate) found: Option<String>,
}

impl StopMatcher {
    /// Reads `piece`. The string that is complete first is found, the longest of several; it is cut
    /// off, or kept where `include`.
    pub(crate) fn push(&mut self, strings: &StopStrings, piece: &str, include: bool) -> Searched {
        self.matched.resize(strings.0.len(), 0);
        let before = self.held.len();
        self.held += piece;
        for (at, byte) in piece.bytes().enumerate() {
            if let Some(pattern) = self.read(strings, byte) {
                let end = before + at + 1;
                let cut = if include {
                    end
                } else {
                    end - pattern.text.len()
                };
                let mut text = self.flush();
                text.truncate(cut);
                let found = Some(pattern.text.clone());
                return Searched { text, found };
            }
        }
        let open = self.matched.iter().copied().max().unwrap_or_default();
        let held = self.held.split_off(self.held.len() - open);
        Searched {
            text: std::mem::replace(&mut self.held, held),
            found: None,
        }
    }

    /// Begins anew and returns what was held back.
    pub(crate) fn flush(&mut self) -> String {
        self.matched.fill(0);
        std::mem::take(&mut self.held)
    }

    /// The longest string that `byte` completes.
    fn read<'a>(&mut self, strings: &'a StopStrings, byte: u8) -> Option<&'a Pattern> {
        let mut found: Option<&Pattern> = None;
        for (pattern, matched) in strings.0.iter().zip(&mut self.matched) {
            *matched = pattern.step(*matched, byte);
            let complete = *matched == pattern.text.len();
            if complete && found.is_none_or(|other| other.text.len() < pattern.text.len()) {
                found = Some(pattern);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pushes `pieces` and ends.
    fn search(strings: &[&str], pieces: &[&str], include: bool) -> (String, Option<String>) {
        let strings = StopStrings::new(strings.iter().map(ToString::to_string).collect());
        let mut matcher = StopMatcher::default();
        let mut text = String::new();
        for piece in pieces {
            let searched = matcher.push(&strings, piece, include);
            text += &searched.text;
            if searched.found.is_some() {
                assert_eq!(matcher.flush(), "", "nothing follows");
                return (text, searched.found);
            }
        }
        (text + &matcher.flush(), None)
    }

    fn found(text: &str, stop: &str) -> (String, Option<String>) {
        (text.to_owned(), Some(stop.to_owned()))
    }

    #[test]
    fn the_string_that_is_complete_first_wins_and_of_two_the_longer() {
        let strings = ["\n\nUser", "\n\n", "xyz", "yz"];
        assert_eq!(search(&strings, &["a\n\nUser"], false), found("a", "\n\n"));
        assert_eq!(search(&strings, &["ax", "yz"], false), found("a", "xyz"));
        assert_eq!(search(&strings, &["ay", "z"], true), found("ayz", "yz"));
    }

    #[test]
    fn an_earlier_beginning_that_fails_hides_no_later_one() {
        assert_eq!(
            search(&["aab"], &["a", "a", "a", "b"], false),
            found("a", "aab")
        );
        assert_eq!(
            search(&["abac"], &["ababa", "c!"], false),
            found("ab", "abac")
        );
    }

    #[test]
    fn only_what_may_become_a_stop_string_is_held_back() {
        let strings = StopStrings::new(vec!["</s>".to_owned(), "日本".to_owned()]);
        let mut matcher = StopMatcher::default();
        let mut given = |piece: &str| matcher.push(&strings, piece, false).text;
        assert_eq!(given("a<"), "a");
        assert_eq!(given("/"), "");
        assert_eq!(given("b"), "</b");
        assert_eq!(given("日"), "");
        assert_eq!(given("月"), "日月");
        assert_eq!(given("日</"), "日");
    }

    /// All ends of all strings, by eye.
    fn naive(strings: &[String], text: &str, include: bool) -> (String, Option<String>) {
        for end in 1..=text.len() {
            let complete = strings
                .iter()
                .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
            if let Some(stop) = complete.max_by_key(|stop| stop.len()) {
                let cut = if include { end } else { end - stop.len() };
                return (text[..cut].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_searched_as_one_text(
            pieces in prop::collection::vec("(a|b){0,4}|(a|b|é|日|👍){0,4}", 0..12),
            strings in prop::collection::vec("(a|b){2,5}|(a|b|é|日|👍){1,4}", 0..3),
            include in any::<bool>(),
        ) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let names: Vec<&str> = strings.iter().map(String::as_str).collect();
            let expected = naive(&strings, &pieces.concat(), include);
            prop_assert_eq!(search(&names, &pieces, include), expected);
        }
    }
}
