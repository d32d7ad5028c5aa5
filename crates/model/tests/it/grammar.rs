//! Everything written under the grammar of specifications is a specification, and everything can be written that should.

use crate::vocabularies::{BYTES, FALLBACK, TRAINED, fallback, load};
use lemon_model::grammar::{Mask, NextTokens, Walk};
use lemon_model::{Grammar, PolicyError, Tokenizer};
use lemon_num::Random;
use lemon_spec::generate;
use lemon_spec::{BaseRole, Language, Limits, RoleLibrary, Shape, Share, Spec, grammar, render, validate_round};
use std::collections::{HashMap, VecDeque};

/// What a grammar is made for.
struct Setting {
    name: &'static str,
    language: Language,
    earlier: Vec<String>,
    shape: Shape,
}

fn settings() -> Vec<Setting> {
    let language = Language::default;
    let setting = |name, language, earlier: &[&str], shape| {
        let earlier = earlier.iter().map(|id| (*id).to_owned()).collect();
        Setting { name, language, earlier, shape }
    };
    vec![
        setting("as it comes", language(), &[], Shape::default()),
        setting("a later round", language(), &["a1", "a2", "null", "x-1"], shape(6, 4, 9, 14)),
        setting("odd words", odd_language(), &["a2"], shape(3, 2, 8, 8)),
        setting("flat", limited(|limits| limits.depth = 1), &["a1"], shape(12, 3, 0, 0)),
        setting("shallow", limited(|limits| limits.depth = 3), &[], shape(12, 12, 0, 0)),
        setting("large", language(), &[], shape(12, 12, 2, 5)),
        setting("one reference", limited(|limits| limits.parents = 1), &["a1", "a3"], shape(5, 9, 1, 1)),
        setting("little room", limited(|limits| (limits.bytes, limits.id_chars) = (1_000, 2)), &[], Shape::default()),
        setting(
            "short prose",
            limited(|limits| (limits.role_chars, limits.duty_chars) = (7, 8)),
            &[],
            Shape::default(),
        ),
        setting("tools", tools(3), &[], shape(3, 1, 4, 4)),
        setting("few tools", tools(1), &["a1"], shape(2, 2, 4, 4)),
        setting("no review", language(), &[], Shape { review: false, ..shape(8, 4, 12, 20) }),
        setting("no agents", language(), &["a1", "b"], shape(0, 4, 12, 20)),
    ]
}

fn shape(agents: usize, parents: usize, role_chars: usize, duty_chars: usize) -> Shape {
    Shape { agents, parents, role_chars, duty_chars, review: true }
}

fn limited(change: impl FnOnce(&mut Limits)) -> Language {
    let mut language = Language::default();
    change(&mut language.limits);
    language
}

fn tools(most: usize) -> Language {
    let tools = ["python", "docs.search", "7.a, b", "s.{y}: \"z\"", "null", "s.é"].map(String::from).to_vec();
    Language { tools, ..limited(|limits| limits.tools = most) }
}

/// Roles and capacities that have to be quoted, or are not ASCII.
fn odd_language() -> Language {
    let mut language = Language { roles: RoleLibrary::empty(), ..Language::default() };
    for name in ["no", "solver", "deep thinker", "a: b", "Prüfer", "c#"] {
        let text = || name.to_owned();
        let (reads, answers) = (Share::Reply, true);
        language.roles.insert(BaseRole { name: text(), title: text(), duty: text(), prompt: text(), reads, answers });
    }
    language.capacities = ["tiny", "~", "big one", "größte", "\"q\"\n"].map(String::from).to_vec();
    language
}

impl Setting {
    fn grammar(&self, tokenizer: &Tokenizer) -> Grammar {
        Grammar::new(&grammar(&self.language, &self.earlier, &self.shape), tokenizer).unwrap()
    }

    /// That a text is a specification, written canonically, and within the shape.
    fn check(&self, text: &str) -> Spec {
        let plan = validate_round(text, &self.language, &self.earlier)
            .unwrap_or_else(|rejection| panic!("{}: {rejection}\n{text}", self.name));
        assert_eq!(render(plan.spec()).text, text, "{}", self.name);
        assert!(self.has(plan.spec()), "{}: {text}", self.name);
        plan.spec().clone()
    }

    /// Whether a specification is within the shape.
    fn has(&self, spec: &Spec) -> bool {
        let fits = |text: &Option<String>, most| text.as_ref().is_none_or(|text| text.replace(' ', "").len() <= most);
        spec.agents.len() <= self.shape.agents
            && (self.shape.review || spec.next == lemon_spec::Next::Stop)
            && spec.agents.iter().all(|agent| {
                agent.after.len() <= self.shape.parents
                    && fits(&agent.role, self.shape.role_chars)
                    && fits(&agent.duty, self.shape.duty_chars)
            })
    }
}

/// A text, and what its tokens were chosen from.
struct Written {
    tokens: Vec<u32>,
    choices: Vec<Option<Mask>>,
}

/// Writes a text by choosing among the allowed tokens, each as likely as any.
fn write(mut walk: Walk, random: &mut Random) -> Written {
    let mut written = Written { tokens: Vec::new(), choices: Vec::new() };
    loop {
        match walk.next().unwrap() {
            NextTokens::End => return written,
            NextTokens::Forced(tokens) => {
                assert!(!tokens.is_empty());
                written.choices.extend(tokens.iter().map(|_| None));
                written.tokens.extend(tokens);
            }
            NextTokens::Choose(mask) => {
                let allowed: Vec<u32> = mask.tokens().collect();
                assert!(allowed.len() > 1 && allowed.len() == mask.count());
                let token = *random.pick(&allowed).unwrap();
                walk.take(token).unwrap();
                written.tokens.push(token);
                written.choices.push(Some(mask));
            }
        }
    }
}

#[test]
fn whatever_is_written_is_a_specification() {
    let mut sizes = [0; 13];
    for (tokenizer, texts) in [(&*TRAINED, 600), (&*BYTES, 260), (&*FALLBACK, 50)] {
        for (number, setting) in settings().into_iter().enumerate() {
            let grammar = setting.grammar(tokenizer);
            for seed in 0..texts {
                let mut random = Random::new(seed * 1_000 + number as u64);
                let written = write(grammar.walk(), &mut random);
                assert_eq!(written.tokens.last(), Some(&tokenizer.end()));
                let text = tokenizer.decode(&written.tokens);
                sizes[setting.check(&text).agents.len()] += 1;
                if seed % 20 == 0 {
                    check_again(&grammar, &written, &text);
                }
            }
        }
    }
    assert_eq!(sizes.iter().sum::<usize>(), 11_830);
    assert!(sizes.iter().all(|texts| *texts > 0), "{sizes:?}");
}

/// That walking the same tokens again offers the same choices, and that the text can be encoded.
fn check_again(grammar: &Grammar, written: &Written, text: &str) {
    assert_eq!(grammar.choices(&written.tokens).unwrap(), written.choices);
    let half = written.tokens.len() / 2;
    assert_eq!(grammar.choices(&written.tokens[..half]).unwrap(), written.choices[..half]);
    let encoded = grammar.encode(text).unwrap();
    assert!(encoded.len() <= written.tokens.len() + 8, "{} tokens became {}", written.tokens.len(), encoded.len());
    assert_eq!(grammar.tokenizer().decode(&encoded), text);
    assert_eq!(grammar.choices(&encoded).unwrap().len(), encoded.len());
}

/// A random specification in the words of the grammar: its ids, its order of references, and its prose where it has any.
fn in_our_words(mut spec: Spec, earlier: &[String]) -> Spec {
    let fresh = (1..).map(|number| format!("a{number}")).filter(|id| !earlier.contains(id));
    let own: Vec<String> = spec.agents.iter().map(|agent| agent.id.clone()).collect();
    let names: HashMap<String, String> = own.iter().cloned().zip(fresh).collect();
    let order: Vec<&String> = earlier.iter().chain(&own).collect();
    let list = |ids: &mut Vec<String>| {
        ids.sort_by_key(|id| order.iter().position(|known| *known == id));
        ids.iter_mut().for_each(|id| *id = names.get(id).unwrap_or(id).clone());
    };
    let is_word = |it: char| it.is_ascii_alphanumeric() || " ,.;?!'()%+=*/_-".contains(it);
    let is_prose = |text: &String| {
        let plain = text.starts_with(|it: char| it.is_ascii_alphabetic()) && text.chars().all(is_word);
        plain && text.len() > 5 && text.split(' ').all(|word| !word.is_empty())
    };
    for agent in &mut spec.agents {
        agent.id = names[&agent.id].clone();
        list(&mut agent.after);
        agent.role = agent.role.take().filter(is_prose);
        agent.duty = agent.duty.take().filter(is_prose);
    }
    list(&mut spec.answer.from);
    spec
}

#[test]
fn every_specification_within_the_shape_can_be_written() {
    let mut encoded = 0;
    for tokenizer in [&*TRAINED, &*BYTES, &*FALLBACK] {
        for setting in settings().into_iter().filter(|setting| setting.language.limits == Limits::default()) {
            let grammar = setting.grammar(tokenizer);
            for seed in 0..300 {
                let spec = generate::spec_after(seed, &setting.language, &setting.earlier);
                let spec = in_our_words(spec, &setting.earlier);
                if !setting.has(&spec) {
                    continue;
                }
                let text = render(&spec).text;
                let tokens = grammar.encode(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", setting.name));
                assert_eq!(tokenizer.decode(&tokens), text);
                encoded += 1;
            }
        }
    }
    assert!(encoded > 2_000, "{encoded}");
}

const TEXT: &str = "\
agents:
  - id: a1
    base: solver
    role: ~
    duty: Solve it.
    capacity: small
    after: []
    share: reply
  - id: a2
    base: critic
    role: ~
    duty: ~
    capacity: large
    after: [a1]
    share: reply
answer: {from: [a1, a2], by: vote}
next: stop
";

#[test]
fn what_is_no_sentence_is_refused_where_it_goes_wrong() {
    // `fine` bytes of what is new could stand.
    let check = |old: &str, new: &str, fine: usize| {
        let text = TEXT.replacen(old, new, 1);
        let refused_at = |tokenizer: &Tokenizer| match settings()[0].grammar(tokenizer).encode(&text) {
            Err(PolicyError::NotInGrammar { at }) => at,
            other => panic!("{old} became {new}: {other:?}"),
        };
        let byte = TEXT.find(old).unwrap() + fine;
        assert_eq!(refused_at(&BYTES), byte, "{old} became {new}");
        assert!(refused_at(&TRAINED) <= byte && refused_at(&FALLBACK) <= byte);
    };
    check("a1", "b1", 0);
    check("solver", "solve", 5);
    check("role: ~", "role: no", 8);
    check("role: ~", "role: Solver ", 13);
    check("role: ~", "role: two  spaces", 10);
    check("role: ~", "role: a: b", 7);
    check("role: ~", "role: \"a\"", 6);
    check("Solve it.", &"long".repeat(41), 160);
    check("after: [a1]", "after: [a2]", 9);
    check("after: [a1]", "after: [a1, a1]", 10);
    check("[a1, a2]", "[a2, a1]", 3);
    check("[a1, a2]", "[]", 1);
    check("vote", "votes", 4);
    check("next: stop\n", "next: stop", 10);
    check("next: stop\n", "next: stop\n\n", 11);
    check("next: stop\n", "", 0);
}

#[test]
fn other_tokens_than_those_of_a_walk_are_refused() {
    for tokenizer in [&*TRAINED, &*BYTES, &*FALLBACK] {
        let grammar = settings()[0].grammar(tokenizer);
        let tokens = grammar.encode(TEXT).unwrap();
        let check = |tokens: &[u32], expected: usize| match grammar.choices(tokens) {
            Err(PolicyError::NotInGrammar { at }) => assert_eq!(at, expected),
            other => panic!("{other:?}"),
        };
        for at in 0..tokens.len() {
            // Special tokens and numbers beyond the vocabulary stand nowhere but at the end.
            let wrong = if at + 1 == tokens.len() { tokens[0] } else { tokenizer.end() };
            check(&[&tokens[..at], &[wrong], &tokens[at + 1..]].concat(), at);
            check(&[&tokens[..at], &[u32::MAX], &tokens[at + 1..]].concat(), at);
        }
        check(&[&tokens[..], &[tokenizer.end()]].concat(), tokens.len());
    }
    // The same letters by other tokens: bytes where the vocabulary has words.
    let grammar = settings()[0].grammar(&TRAINED);
    let spelt: Vec<u32> = TEXT.bytes().map(|byte| TRAINED.encode_plain(&char::from(byte).to_string())[0]).collect();
    assert!(matches!(grammar.choices(&spelt), Err(PolicyError::NotInGrammar { at: 0 })));
}

/// Reads a text byte by byte as far as it is the beginning of a sentence.
#[derive(Clone)]
struct Reader {
    walk: Walk,
    /// What is forced and not yet read; `None` for the end.
    ahead: VecDeque<Option<u8>>,
}

impl Reader {
    fn accepts(&mut self, byte: u8) -> bool {
        while self.ahead.is_empty() {
            match self.walk.next().unwrap() {
                NextTokens::Forced(run) => {
                    self.ahead.extend(run.iter().map(|token| BYTES.bytes(*token).first().copied()))
                }
                NextTokens::Choose(_) => {
                    return self.walk.take(BYTES.encode_plain(&char::from(byte).to_string())[0]).is_ok();
                }
                NextTokens::End => return false,
            }
        }
        self.ahead.pop_front() == Some(Some(byte))
    }
}

#[test]
fn a_mask_has_just_the_tokens_after_which_the_text_can_go_on() {
    let mut masks = 0;
    for setting in settings() {
        let mut reader = Reader { walk: setting.grammar(&BYTES).walk(), ahead: VecDeque::new() };
        let written = write(setting.grammar(&TRAINED).walk(), &mut Random::new(7));
        for (token, choice) in written.tokens.iter().zip(&written.choices) {
            // Most masks of prose are alike.
            if let Some(mask) = choice.as_ref().filter(|mask| mask.count() < 300 || masks % 16 == 0) {
                for candidate in 0..TRAINED.vocabulary() as u32 {
                    let (mut reader, bytes) = (reader.clone(), TRAINED.bytes(candidate));
                    let can = !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii() && reader.accepts(*byte));
                    let ascii = bytes.is_ascii();
                    assert!(!ascii || mask.allows(candidate) == can, "{:?}", TRAINED.decode(&[candidate]));
                }
            }
            masks += usize::from(choice.is_some());
            if TRAINED.bytes(*token).iter().any(|byte| !reader.accepts(*byte)) {
                break; // A role that is not ASCII.
            }
        }
    }
    assert!(masks > 200, "{masks}");
}

#[test]
fn a_choice_is_offered_until_it_is_taken() {
    let mut walk = settings()[0].grammar(&TRAINED).walk();
    assert!(matches!(walk.take(TRAINED.end()), Err(PolicyError::NotInGrammar { at: 0 })));
    let NextTokens::Forced(forced) = walk.next().unwrap() else { panic!() };
    assert_eq!(TRAINED.decode(&forced), "agents:\n  - id: a1\n    base:");
    let NextTokens::Choose(mask) = walk.next().unwrap() else { panic!() };
    assert_eq!(walk.next().unwrap(), NextTokens::Choose(mask.clone()));
    assert_eq!(mask.words().len(), TRAINED.vocabulary().div_ceil(32));
    assert!(matches!(walk.take(TRAINED.end()), Err(PolicyError::NotInGrammar { at }) if at == forced.len()));
    assert_eq!(walk.next().unwrap(), NextTokens::Choose(mask.clone()));
    let before = walk.clone();
    let [token] = TRAINED.encode_plain(" critic")[..] else { panic!() };
    walk.take(token).unwrap();
    let NextTokens::Forced(forced) = walk.next().unwrap() else { panic!() };
    assert_eq!(TRAINED.decode(&forced), "\n    role:");
    // A clone is a walk of its own.
    assert_eq!(before.clone().next().unwrap(), NextTokens::Choose(mask));
}

#[test]
fn where_a_text_may_end_the_end_is_a_choice() {
    let grammar = Grammar::new("start: /a+/", &BYTES).unwrap();
    let a = BYTES.encode_plain("a")[0];
    assert_eq!(grammar.encode("aa").unwrap(), [a, a, BYTES.end()]);
    let choices = grammar.choices(&[a, a, BYTES.end()]).unwrap();
    let allowed = |choice: &Option<Mask>| choice.as_ref().map(|mask| mask.tokens().collect::<Vec<_>>());
    let both = Some(Vec::from_iter([a.min(BYTES.end()), a.max(BYTES.end())]));
    assert_eq!(choices.iter().map(allowed).collect::<Vec<_>>(), [None, both.clone(), both]);
    assert!(matches!(grammar.encode(""), Err(PolicyError::NotInGrammar { at: 0 })));
}

#[test]
fn walks_side_by_side_do_not_disturb_each_other() {
    fn shared<T: Send + Sync>(_: &T) {}
    let grammar = settings()[1].grammar(&TRAINED);
    shared(&grammar);
    shared(&grammar.walk());
    let alone = |seed| write(settings()[1].grammar(&TRAINED).walk(), &mut Random::new(seed)).tokens;
    std::thread::scope(|scope| {
        let grammar = &grammar;
        let beside: Vec<_> =
            (0..8).map(|seed| scope.spawn(move || write(grammar.walk(), &mut Random::new(seed)).tokens)).collect();
        for (seed, thread) in (0..).zip(beside) {
            assert_eq!(thread.join().unwrap(), alone(seed));
        }
    });
}

#[test]
fn grammars_that_cannot_be_used_are_refused() {
    let check = |lark: &str, part: &str| {
        let error = Grammar::new(lark, &BYTES).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    check("", "start");
    check("start: \"a", "lexer error");
    check("start: absent", "absent");
    let no_roles = Language { roles: RoleLibrary::empty(), ..Language::default() };
    check(&grammar(&no_roles, &[], &Shape::default()), "nothing can be written (NoExtensionBias)");
    let mut tokenizer = fallback();
    tokenizer["model"]["vocab"].as_object_mut().unwrap().remove("<0x7E>");
    let error = Grammar::new("start: \"a\"", &load(&tokenizer)).unwrap_err();
    assert_eq!(error.to_string(), "the grammar cannot be used: the vocabulary has no token for '~' alone");
}
