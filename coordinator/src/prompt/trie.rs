//! Many strings, to be found in a text at a given place.

use std::collections::HashMap;

/// The strings, by their characters.
#[derive(Debug, Default)]
pub(super) struct Trie {
    /// The node that a character leads to from a node; the first is 0.
    next: HashMap<(u32, char), u32>,
    /// The nodes at which a string ends, with what was said of it.
    ends: HashMap<u32, Option<char>>,
    nodes: u32,
}

/// What a text begins with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The longest of the strings that it begins with: its length in bytes, and what was said of it.
    pub(super) string: Option<(usize, Option<char>)>,
    /// The longest beginning of a string that it begins with: its length in bytes.
    pub(super) beginning: usize,
}

impl Trie {
    /// Adds `string` and says `note` of it.
    pub(super) fn insert(&mut self, string: &str, note: Option<char>) {
        let mut node = 0;
        for c in string.chars() {
            let fresh = self.nodes + 1;
            node = *self.next.entry((node, c)).or_insert(fresh);
            self.nodes = self.nodes.max(node);
        }
        self.ends.insert(node, note);
    }

    /// What `text` begins with.
    pub(super) fn find(&self, text: &str) -> Found {
        let mut found = Found::default();
        let mut node = 0;
        for c in text.chars() {
            let Some(next) = self.next.get(&(node, c)) else {
                break;
            };
            node = *next;
            found.beginning += c.len_utf8();
            if let Some(note) = self.ends.get(&node) {
                found.string = Some((found.beginning, *note));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_string_and_the_longest_beginning_are_found() {
        let mut trie = Trie::default();
        for (string, note) in [("<s>", 'a'), ("<s>>x", 'b'), ("é", 'c')] {
            trie.insert(string, Some(note));
        }
        let found = |text, string, beginning| {
            assert_eq!(trie.find(text), Found { string, beginning }, "{text}");
        };
        found("<s>>y", Some((3, Some('a'))), 4);
        found("<s>>xx", Some((5, Some('b'))), 5);
        found("éé", Some((2, Some('c'))), 2);
        found("<", None, 1);
        found("s>", None, 0);
        found("", None, 0);
    }
}
