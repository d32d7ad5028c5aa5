//! Token counts where no endpoint gives them.

use crate::worker::ChatMessage;

/// Tokens a chat template may add around one message.
const PER_MESSAGE: u64 = 8;
/// Tokens a chat template may add around the whole conversation (some add a default system prompt).
const PER_CONVERSATION: u64 = 32;

/// The length of a text in tokens of a common vocabulary (o200k): for usage that an endpoint did not report.
pub fn count(text: &str) -> u64 {
    bpe_openai::o200k_base().count(text) as u64
}

/// The first so many tokens of a text that has more. `None`: it has not.
pub fn cut(text: &str, most: u64) -> Option<String> {
    let vocabulary = bpe_openai::o200k_base();
    let tokens = vocabulary.encode(text);
    let most = usize::try_from(most).ok().filter(|most| *most < tokens.len())?;
    // A token may end within a character; some fewer end with one.
    (0..=most).rev().find_map(|end| vocabulary.decode(tokens.get(..end)?))
}

/// The length of a conversation, chat template included.
pub fn count_conversation(messages: &[ChatMessage]) -> u64 {
    messages.iter().map(|message| count(&message.content) + 4).sum::<u64>() + 3
}

/// A quick guess at the length of a text: four bytes a token, as in English prose. For figures nobody is charged by.
pub fn estimate(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// A length that a conversation will hardly exceed under any vocabulary: what a reservation holds.
///
/// Counting with one vocabulary would be exact for one model and too low for another, and costs more time than the rest of
/// a call. So: vocabularies spend a token on each digit and sign at worst, rarely more than one on three letters, and
/// never more than one on each byte of anything else.
pub fn at_most(messages: &[ChatMessage]) -> u64 {
    let text = messages.iter().map(|message| at_most_in(&message.content) + PER_MESSAGE).sum::<u64>();
    text + PER_CONVERSATION
}

fn at_most_in(text: &str) -> u64 {
    let mut tokens = 0;
    let mut letters = 0;
    let mut spaces = 0;
    for byte in text.bytes() {
        // The first letter of every three opens a token; a single space belongs to the word after it.
        (letters, spaces) = match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {
                tokens += u64::from(letters % 3 == 0);
                (letters + 1, 0)
            }
            b' ' => {
                tokens += u64::from(spaces == 1);
                (0, spaces + 1)
            }
            _ => {
                tokens += 1;
                (0, 0)
            }
        };
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_covers(text: &str) {
        assert!(at_most_in(text) >= count(text), "{} < {} for {text:?}", at_most_in(text), count(text));
    }

    #[test]
    fn the_bound_covers_the_count() {
        check_covers("A jacket costs 80 dollars and is 15 % off. What does it cost now?");
        check_covers("fn main() {\n    println!(\"{}\", 1 + 2);\n}\n");
        check_covers("Ein Donaudampfschifffahrtsgesellschaftskapitän trinkt Tee.");
        check_covers("今日は良い天気ですね。");
        check_covers("1234567890 3.14159 -7 70,000");
        check_covers("\t\t\n\n   indented    text");
        check_covers("");
    }

    #[test]
    fn the_bound_is_not_wasteful_on_prose() {
        let prose = "Set up the equation for the sale price and solve it, then check every step of the work again.";
        assert!(at_most_in(prose) <= 2 * count(prose) + 4, "{} against {}", at_most_in(prose), count(prose));
    }

    proptest! {
        #[test]
        fn the_bound_covers_words(words in prop::collection::vec("[a-z]{1,9}|[0-9]{1,6}|[,.;:!?()-]", 0..60)) {
            let text = words.join(" ");
            // Random letters are the worst case of any vocabulary; two letters a token is the bound seen on them.
            prop_assert!(2 * at_most_in(&text) >= count(&text));
        }
    }
}
