//! Prompts and grammars of a language model.

use crate::pair::{Pair, Told};
use crate::trainable::{Encoded, PromptEncoder};
use crate::writer::MOST_TOKENS;
use lemon_exec::Form;
use lemon_exec::orchestrator::{RoundResult, WriteContext, assignment_within, instructions, specification_in};
use lemon_model::tokenizer::{Message, Role};
use lemon_model::{Grammar, PolicyError, SampleRequest, Tokenizer};
use lemon_spec::{Language, PLAIN, Shape, grammar};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Encodes rounds as prompts of a language model, with the grammar of the team to write.
#[derive(Clone)]
pub struct LanguagePromptEncoder {
    tokenizer: Tokenizer,
    language: Arc<Language>,
    shape: Shape,
    /// Tokens that a prompt may have.
    longest_prompt: usize,
    /// Rounds that a run has at most: the last one cannot ask for another.
    rounds: u32,
    /// Whether training samples under the grammar.
    constrained: bool,
    /// Whether texts have the tokens by which this program writes them under a grammar.
    canonical: bool,
    grammars: Arc<Mutex<Grammars>>,
}

/// The key: the agents of earlier rounds, and whether another round may follow.
type Grammars = HashMap<(Vec<String>, bool), Grammar>;

impl LanguagePromptEncoder {
    /// An encoder for a model with a context of `positions` tokens.
    pub fn new(tokenizer: Tokenizer, language: Arc<Language>, shape: Shape, positions: usize) -> Self {
        // A team of the largest shape has to fit behind the prompt; most are far shorter.
        let longest_prompt = positions.saturating_sub(MOST_TOKENS.min(positions / 2)).max(1);
        // One plain call is the guard's decision. Policies choose among the roles they were trained with.
        let language = Arc::new(Language { roles: language.roles.without(PLAIN), ..(*language).clone() });
        LanguagePromptEncoder {
            tokenizer,
            language,
            shape,
            longest_prompt,
            rounds: u32::MAX,
            constrained: true,
            canonical: true,
            grammars: Arc::default(),
        }
    }

    /// The same for runs of at most so many rounds.
    #[must_use]
    pub fn with_rounds(self, rounds: u32) -> Self {
        LanguagePromptEncoder { rounds, ..self }
    }

    /// The same for a policy that samples without grammars: some of its texts are not valid.
    #[must_use]
    pub fn unconstrained(self) -> Self {
        LanguagePromptEncoder { constrained: false, canonical: false, ..self }
    }

    /// The same for a policy that is sampled under its grammars by another program: it may spell a text with other tokens.
    #[must_use]
    pub fn spelt_elsewhere(self) -> Self {
        LanguagePromptEncoder { canonical: false, ..self }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What a specification may say.
    pub fn language(&self) -> &Arc<Language> {
        &self.language
    }

    /// The prompt for one round. A task that is too long loses its middle: its beginning names the topic, its end the question. Replies
    /// of earlier rounds lose their beginning first, because the answer stands at their end.
    ///
    /// # Errors
    /// The model's chat template cannot be used.
    pub fn prompt(&self, context: &WriteContext<'_>) -> Result<Vec<u32>, PolicyError> {
        let reply_chars = self.longest_prompt / REPLY_SHARE;
        let mut kept = context.question.chars().count();
        loop {
            let question = shortened(context.question, kept);
            let shorter =
                WriteContext { question: &question, tokens_left: None, results: context.results.clone(), ..*context };
            let messages = [
                Message { role: Role::System, content: instructions(&self.language) },
                Message { role: Role::User, content: assignment_within(&shorter, reply_chars) },
            ];
            let prompt = self.tokenizer.prompt(&messages)?;
            if prompt.len() <= self.longest_prompt || kept <= 1 {
                return Ok(prompt);
            }
            let excess = prompt.len() - self.longest_prompt;
            // A token has at least one character, as a rule several.
            kept = kept.saturating_sub(excess.max(16)).max(1);
        }
    }

    /// The grammar of a round that follows those with these agents.
    ///
    /// # Errors
    /// The grammar cannot be used: a defect.
    pub fn grammar(&self, earlier: &[String]) -> Result<Grammar, PolicyError> {
        self.grammar_of(earlier, true)
    }

    fn grammar_of(&self, earlier: &[String], another: bool) -> Result<Grammar, PolicyError> {
        let known = || self.grammars.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (earlier.to_vec(), another);
        if let Some(grammar) = known().get(&key) {
            return Ok(grammar.clone());
        }
        let shape = Shape { review: self.shape.review && another, ..self.shape.clone() };
        let made = Grammar::new(&grammar(&self.language, earlier, &shape), &self.tokenizer)?;
        known().insert(key, made.clone());
        Ok(made)
    }

    /// The request for one round.
    ///
    /// # Errors
    /// As [`Self::prompt`] and [`Self::grammar`].
    pub fn request(&self, context: &WriteContext<'_>, constrained: bool) -> Result<SampleRequest, PolicyError> {
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        let another = context.round < self.rounds;
        let grammar = if constrained { Some(self.grammar_of(&earlier, another)?) } else { None };
        Ok(SampleRequest { prompt: self.prompt(context)?, grammar, seed: context.seed })
    }

    /// A text without a grammar: the tokens of `like` as far as both are the same, then what the tokenizer makes of the rest. Where
    /// that text stood between fences, this one does too.
    fn encode_freely(&self, text: &str, like: &[u32]) -> Encoded {
        let end = self.tokenizer.end();
        let known = self.tokenizer.decode(like);
        let span = specification_span(&known);
        let around = (known.get(..span.start).unwrap_or_default(), known.get(span.end..).unwrap_or_default());
        let whole = [around.0, text, around.1].concat();
        let mut rest = whole.as_str();
        let mut tokens = Vec::new();
        for token in like.iter().filter(|token| **token != end) {
            let after = std::str::from_utf8(self.tokenizer.bytes(*token)).ok().and_then(|it| rest.strip_prefix(it));
            let Some(after) = after.filter(|after| after.len() < rest.len()) else { break };
            tokens.push(*token);
            rest = after;
        }
        tokens.extend(self.tokenizer.encode_plain(rest));
        tokens.push(end);
        let ends = self.ends(&tokens).into_iter();
        let ends = ends.map(|at| at.saturating_sub(around.0.len()).min(text.len())).collect();
        Encoded { tokens, ends }
    }

    /// The byte at which each token ends.
    fn ends(&self, tokens: &[u32]) -> Vec<usize> {
        let end = self.tokenizer.end();
        let length = |token: &u32| if *token == end { 0 } else { self.tokenizer.bytes(*token).len() };
        let ends = tokens.iter().scan(0, |at, token| {
            *at += length(token);
            Some(*at)
        });
        ends.collect()
    }

    /// The context of a first round.
    pub fn first<'b>(&'b self, question: &'b str, seed: u64) -> WriteContext<'b> {
        WriteContext {
            question,
            round: 1,
            results: Vec::new(),
            language: &self.language,
            form: Form::of(question),
            tokens_left: None,
            seed,
        }
    }
}

/// The context that the specification of a pair was written in.
pub fn write_context<'b>(pair: &'b Pair, language: &'b Language) -> WriteContext<'b> {
    let result = |told: &'b Told| RoundResult {
        agent: &told.agent,
        role: &told.role,
        status: told.status,
        reply: told.reply.as_deref(),
        sure: told.sure,
    };
    WriteContext {
        question: &pair.task.question,
        round: pair.round,
        results: pair.results.iter().map(result).collect(),
        language,
        form: Form::of(&pair.task.question),
        tokens_left: None,
        seed: pair.seed,
    }
}

/// For so many tokens of a prompt, one character of each reply is read: 128 characters where a model reads 2,048 tokens, about
/// 4,000 where it reads 32,768.
const REPLY_SHARE: usize = 8;

/// A text of at most so many characters: its beginning and its end.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let head = most.div_ceil(2);
    text.chars().take(head).chain(" … ".chars()).chain(text.chars().skip(count - (most - head))).collect()
}

impl PromptEncoder for LanguagePromptEncoder {
    fn request(&self, context: &WriteContext<'_>) -> Result<SampleRequest, PolicyError> {
        LanguagePromptEncoder::request(self, context, self.constrained)
    }

    fn encode(&self, request: &SampleRequest, text: &str, like: &[u32]) -> Option<Encoded> {
        let Some(grammar) = &request.grammar else { return Some(self.encode_freely(text, like)) };
        if !self.canonical {
            grammar.walk_after(0, text.as_bytes())?;
            return Some(self.encode_freely(text, like));
        }
        // A text that the grammar does not have has no tokens of it: `None`, as documented.
        let tokens = grammar.encode_like(text, like).ok()?;
        Some(Encoded { ends: self.ends(&tokens), tokens })
    }
}

/// Where the specification stands in what a model wrote without a grammar: between fences, if there are some; else it is all of it.
pub fn specification_span(text: &str) -> Range<usize> {
    if !text.contains("```") {
        return 0..text.len();
    }
    let found = specification_in(text);
    // It is a part of the text.
    let start = (found.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + found.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_trace::AgentStatus;

    fn encoder() -> LanguagePromptEncoder {
        let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap();
        let shape = Shape { agents: 4, role_chars: 6, duty_chars: 8, ..Shape::default() };
        LanguagePromptEncoder::new(tokenizer, Arc::new(Language::default()), shape, 4_096)
    }

    #[test]
    fn a_long_task_loses_its_middle() {
        assert_eq!(shortened("0123456789", 10), "0123456789");
        assert_eq!(shortened("0123456789", 4), "01 … 89");
        assert_eq!(shortened("0123456789", 1), "0 … ");
        let encoder = encoder();
        let long = format!("First words. {} last words?", "x".repeat(20_000));
        let prompt = encoder.prompt(&encoder.first(&long, 0)).unwrap();
        assert!(prompt.len() <= encoder.longest_prompt, "{}", prompt.len());
        let told = encoder.tokenizer.decode(&prompt);
        assert!(told.contains("First words.") && told.contains("last words?"));
    }

    #[test]
    fn long_replies_lose_their_beginning() {
        let encoder = encoder();
        let most = encoder.longest_prompt / REPLY_SHARE;
        let told = |reply: &str| {
            let result =
                RoundResult { agent: "a1", role: "Solver", status: AgentStatus::Done, reply: Some(reply), sure: None };
            let context = WriteContext { round: 2, results: vec![result], ..encoder.first("A task?", 0) };
            let prompt = encoder.prompt(&context).unwrap();
            assert!(prompt.len() <= encoder.longest_prompt, "{}", prompt.len());
            encoder.tokenizer.decode(&prompt)
        };
        let end = "Answer: 42";
        let exact = format!("{}{end}", "x".repeat(most - end.len()));
        assert!(told(&exact).contains(&format!("> {exact}\n")));
        let long = told(&format!("First words. {exact}"));
        assert!(long.contains(&format!("> … {exact}\n")));
        assert!(long.contains("A task?") && !long.contains("First words."));
    }

    #[test]
    fn a_text_without_a_grammar_shares_the_tokens_of_another() {
        let whole = encoder();
        let specs = ["agents:\n  - {id: a1, base: solver, capacity: small}\n".to_owned()];
        let tokenizer = Tokenizer::train(specs.into_iter(), 300, &["<|end|>"]).unwrap();
        let free = LanguagePromptEncoder { tokenizer: tokenizer.clone(), ..whole }.unconstrained();
        let request = PromptEncoder::request(&free, &free.first("A task?", 0)).unwrap();
        assert!(request.grammar.is_none());
        let text = "agents:\n  - {id: a1, base: solver, capacity: large}\n";
        // Byte by byte, as no tokenizer would write it, until the texts part.
        let written = "agents:\n  - {id: a1, base: solver, capacity: small}\n";
        let like: Vec<u32> =
            written.bytes().flat_map(|byte| tokenizer.encode_plain(&char::from(byte).to_string())).collect();
        let Encoded { tokens, ends } = free.encode(&request, text, &like).unwrap();
        let shared = text.find("large").unwrap();
        assert_eq!(tokens[..shared], like[..shared]);
        assert_eq!((tokens.last(), ends.last()), (Some(&tokenizer.end()), Some(&text.len())));
        assert_eq!(tokenizer.decode(&tokens), text);
        // Without a text to share with, it is what the tokenizer makes of it.
        let alone = free.encode(&request, text, &[]).unwrap();
        assert_eq!(alone.tokens, [tokenizer.encode_plain(text), vec![tokenizer.end()]].concat());
        assert!(alone.tokens.len() < tokens.len());
        // What stood between fences stays there, and places are those of the text alone.
        let like = tokenizer.encode_plain(&format!("```yaml\n{}\n```", written.trim_end()));
        let Encoded { tokens, ends } = free.encode(&request, text.trim_end(), &like).unwrap();
        assert_eq!(tokenizer.decode(&tokens), format!("```yaml\n{}\n```", text.trim_end()));
        assert_eq!((ends[0], ends.last().copied(), ends.is_sorted()), (0, Some(text.trim_end().len()), true));
    }

    #[test]
    fn a_specification_is_found_between_fences() {
        let check = |text: &str, expected: &str| assert_eq!(&text[specification_span(text)], expected);
        check("agents: []\n", "agents: []\n");
        check("Here:\n```yaml\nagents: []\n```\nEnjoy!", "agents: []");
        check("``` only one fence", "``` only one fence");
        check("", "");
        check("```\n```", "");
    }
}
