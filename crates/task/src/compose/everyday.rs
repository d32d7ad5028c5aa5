//! Everyday tasks of our own: questions that people ask an assistant, without a key to grade by.
//!
//! `kind → template → words for its <slots>, which may have slots themselves → now and then a greeting, a remark, a slip
//! of the keyboard`. A slot with a digit behind its name, as in `<func1>`, has the same words throughout a task.

use std::collections::HashSet;

use super::{MOST_DRAWS, things};
use lemon_num::Random;

/// What an everyday task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Everyday {
    /// A hello, a thank-you, small talk.
    Greeting,
    /// A new text: a letter, a poem, a slogan.
    Writing,
    /// A plan or a list of things to do or to take along.
    Planning,
    /// A fact, a definition, a comparison.
    Knowledge,
    /// Reasons, advice, ideas.
    Explaining,
    /// A program, or work on one.
    Code,
    /// Work on a text that is given.
    Rewriting,
    /// Something to bring into a given form, or to take out of a text.
    Data,
}

use Everyday::{Code, Data, Explaining, Greeting, Knowledge, Planning, Rewriting, Writing};

/// The kinds as often as they are wanted: a quarter is code, and greetings are rare since there are few ways to greet.
const MIX: [Everyday; 24] = [
    Code, Code, Code, Code, Code, Code, Writing, Writing, Writing, Planning, Planning, Planning, Knowledge, Knowledge,
    Knowledge, Explaining, Explaining, Explaining, Rewriting, Rewriting, Rewriting, Data, Data, Greeting,
];

/// So many everyday tasks with their kinds. The same seed gives the same tasks, and more of them begin with the fewer; a
/// task comes twice only where many draws found no new one.
pub fn everyday(count: usize, seed: u64) -> Vec<(Everyday, String)> {
    let mut known = HashSet::new();
    (0..count).map(|position| task(position, seed, &mut known)).collect()
}

fn task(position: usize, seed: u64, known: &mut HashSet<String>) -> (Everyday, String) {
    let mut random = super::draw::random(seed, &format!("everyday {position}"));
    let kind = random.pick(&MIX).copied().unwrap_or(Code);
    let mut text = draw(kind, &mut random);
    for _ in 1..MOST_DRAWS {
        if !known.contains(&text) {
            break;
        }
        text = draw(kind, &mut random);
    }
    known.insert(text.clone());
    (kind, text)
}

fn draw(kind: Everyday, random: &mut Random) -> String {
    let template = random.pick(templates(kind)).copied().unwrap_or_default();
    let mut filler = Filler { random, bound: Vec::new(), drawn: Vec::new() };
    let mut text = filler.fill(template);
    if kind != Greeting && filler.random.percent(15) {
        text = filler.fill("<opening>") + &text;
    }
    if kind != Greeting && filler.random.percent(18) {
        let between = match text.chars().last() {
            _ if text.contains('\n') => "\n\n",
            Some(last) if last.is_alphanumeric() => ". ",
            _ => " ",
        };
        text = text + between + &filler.fill("<closing>");
    }
    if kind != Code && !text.contains('\n') && random.percent(12) {
        text = text.to_lowercase().trim_end_matches(['.', '?']).to_owned();
    }
    if random.percent(7) { with_slip(&text, random) } else { text }
}

/// The text with two letters of its first line exchanged or one left out.
fn with_slip(text: &str, random: &mut Random) -> String {
    let line = text.lines().next().unwrap_or_default();
    let in_word = |(at, letters): (usize, &[u8])| letters.iter().all(u8::is_ascii_lowercase).then_some(at + 1);
    let spots: Vec<usize> = line.as_bytes().windows(4).enumerate().filter_map(in_word).collect();
    let Some(at) = random.pick(&spots).copied() else { return text.to_owned() };
    // Four letters of ASCII stand there, hence characters begin at all these positions.
    let (before, behind) = text.split_at(at);
    let (pair, behind) = behind.split_at(2);
    let pair: String = if random.percent(50) { pair.chars().rev().collect() } else { pair[..1].to_owned() };
    format!("{before}{pair}{behind}")
}

/// Fills the slots of one task.
struct Filler<'a> {
    random: &'a mut Random,
    /// Slots with a digit and what they were filled with.
    bound: Vec<(&'static str, String)>,
    /// All that was drawn for this task.
    drawn: Vec<&'static str>,
}

impl Filler<'_> {
    fn fill(&mut self, text: &'static str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('<') {
            filled.push_str(before);
            rest = behind;
            match slot(behind) {
                Some(mark) => {
                    filled.push_str(&self.value(mark));
                    rest = &behind[mark.len() + 1..];
                }
                None => filled.push('<'),
            }
        }
        filled + rest
    }

    fn value(&mut self, mark: &'static str) -> String {
        if let Some((_, value)) = self.bound.iter().find(|(bound, _)| *bound == mark) {
            return value.clone();
        }
        let name = list_name(mark);
        let value = if name == "n" {
            (2 + self.random.below(18)).to_string()
        } else {
            let words = self.words(list(name));
            self.fill(words)
        };
        if name != mark {
            self.bound.push((mark, value.clone()));
        }
        value
    }

    /// Words that this task does not have yet, if a few draws find some.
    fn words(&mut self, from: &'static [&'static str]) -> &'static str {
        let mut words = "";
        for _ in 0..8 {
            words = self.random.pick(from).copied().unwrap_or_default();
            if !self.drawn.contains(&words) {
                break;
            }
        }
        self.drawn.push(words);
        words
    }
}

/// The slot whose opening mark ended just before this text; `None` if it is a bracket of some program.
fn slot(behind: &str) -> Option<&str> {
    let (mark, _) = behind.split_once('>')?;
    let name = list_name(mark);
    (name == "n" || !list(name).is_empty()).then_some(mark)
}

fn list_name(mark: &str) -> &str {
    mark.trim_end_matches(|letter: char| letter.is_ascii_digit())
}

fn templates(kind: Everyday) -> &'static [&'static str] {
    match kind {
        Greeting => GREETING,
        Writing => WRITING,
        Planning => PLANNING,
        Knowledge => KNOWLEDGE,
        Explaining => EXPLAINING,
        Code => CODE,
        Rewriting => REWRITING,
        Data => DATA,
    }
}

#[rustfmt::skip]
const GREETING: &[&str] = &[
    "<hello><mark> <smalltalk>", "<hello>, <name> here. <smalltalk>", "<hello><mark> I'm <name> from <city>.", "<hello>, who are you and what can you do?",
    "<hello><mark> Are you a real person or a <machine>?", "Thanks<mark> That <helped>.", "thank you so much, that <helped><mark>", "Great, that <helped>, thanks<mark>",
    "Goodbye<mark> I'm off to <hobby>.", "That's all for <weekday>, bye<mark>", "See you <weekday><mark> <smalltalk>", "<hello>. <smalltalk> And <smalltalk>",
    "What should I call you? I'm <name>.", "Do you ever get tired of <hobby> questions?", "ok cool<mark> <smalltalk>", "Good night<mark> Tomorrow I'm going to <city>.",
    "<hello>, are you there?", "Do you remember me? <name>, from <weekday>.", "Can I ask you something about <hobby> later?", "Happy <weekday><mark> <smalltalk>",
    "I only wanted to say <hello> before <hobby> tonight<mark>", "Sorry, wrong window<mark> <smalltalk>", "What's your favourite <favourite>?", "My <relative> <name> says <hello><mark>",
];

#[rustfmt::skip]
const WRITING: &[&str] = &[
    "Write <tone> email to <recipient> about <matter>.", "Draft an email to <recipient>: <matter>. Sign it <name> <surname>.", "Could you write a short letter to <recipient> explaining <matter>? I'd like it to sound <adjective>.",
    "Write a <poemform> about <theme>.", "<poemform> about <theme>, <adjective> please", "write me a poem for my <relative>'s <big>th wedding anniversary, mention <hobby> and <city>",
    "Tell me a bedtime story about <hero> who <quest>.", "Write the opening paragraph of a <genre> novel set in <city>.", "A short <genre> story, about <big> words, in which <hero> <quest>.",
    "Continue this story:\n\n<storystart>", "Write a <few>-minute speech for <occasion>. My <relative> <name> loves <hobby>.", "I have to give a toast at <occasion> on <weekday> and I'm nervous. Can you draft something <adjective>? Around <big> words.",
    "Product description for <product>, <money>, aimed at <audience>.", "Write <few> slogans for <business> in <city>.", "Give me <n> name ideas for <business>. Nothing with puns.", "i need a catchy name for <product>",
    "Instagram caption for a photo of <theme>, with <few> hashtags", "Write a LinkedIn post announcing that I <news>. Not too boastful.", "Write a tweet thread (<few> tweets) about <topic>.", "Cover letter for a <profession> position at <company>. I have <n> years of experience and speak <language>.",
    "Please help me write a cover letter. Here is the ad:\n\n<jobad>", "Write an invitation to <occasion> on <date> at <time> in <city>, <n> guests, dress code casual.", "Write a complaint to <company> because <grievance>. I want <money> back.", "My order no. <big><big> from <company> was wrong: <grievance>. Write a firm but polite complaint.",
    "Write a condolence card to <name>, whose <relative> passed away last <weekday>.", "What do I write in a sympathy card for a colleague? Keep it to <few> sentences.", "Write a limerick about a <profession> from <city>.", "Compose a haiku on <theme>.",
    "Write a dialogue between <hero> and <hero> about <theme>.", "Draft a job ad: <profession>, <n> hours per week, <city>, must know <hobby>.", "Write a resignation letter. My last day is <date>, notice period <few> weeks.", "Write a recommendation letter for <name> <surname>, my former <profession>.",
    "Turn these notes into a friendly newsletter:\n<notes>", "Reply to this message for me, <adjective> but clear that I can't make it:\n\n<mail>", "Answer this e-mail and propose <weekday> at <time> instead:\n\n<mail>", "Write a song chorus about <theme> in the style of <genre> music.",
    "Write a wedding vow, <adjective>, <big> words tops; we met while <hobby> in <city>.", "Write a text message to my <relative> saying sorry because <grievance>", "Write a dating profile for someone who likes <hobby> and <hobby>.", "Write an out-of-office note from <date> to <date>, contact is <name> <surname>.",
    "Write a review of <business> in <city>: <few> stars, slow service, lovely <dish>.", "Make up a riddle whose answer is <theme>.", "Write a press release: <company> opens a new office in <city> with <big> jobs.", "Write a monologue for <hero>, <adjective>, ending with a question.", "Birthday message for my <relative>, turning <big>, big fan of <hobby>",
    "Write an essay of about <big>0 words on <topic> for a school newspaper.", "Write a notice for the stairwell: <matter>. Friendly but <adjective>.", "Write <tone> thank-you note to <recipient> for <product>.",
];

#[rustfmt::skip]
const PLANNING: &[&str] = &[
    "Plan a <few>-day trip to <city> for <n> people.", "I'm going to <city> from <date> to <date> with my <relative>. What should we see? Budget <money> per day.", "<few> days in <city>, then <few> in <country>, we like <hobby>. Itinerary please", "Suggest a weekend away under <money> within <few> hours of <city>.",
    "Make a packing list for <few> days of <hobby> in <country> in <month>.", "What do I pack for <city> in <month>? Only hand luggage, <n> kg max.", "Create a <diet> meal plan for <few> days, <n> people, max. <money>.", "Plan dinners Monday to Friday for a family of <few>. <name> doesn't eat <fruit>. <big> minutes of cooking at most.",
    "What can I cook tonight with <ingredient>, <ingredient> and <ingredient>? It's for <few> people.", "Give me a recipe for <dish> for <n> guests.", "shopping list for <dish> and <dish>, <n> ppl, <money> max", "Design a <few>-week workout plan for someone who <fitness>, <few> sessions a week, <big> minutes each.",
    "How should I train for a <distance> in <n> weeks, together with my <relative>, who <fitness>?", "Build a study plan: exam in <subject> on <date>, <n> chapters, I have <few> hours a day.", "I want to learn <language> in <n> months with <big> minutes a day. Make me a schedule.", "Help me plan <occasion> for <big> guests. Budget: <money>. It will be in <city>.",
    "Plan a birthday party for a <n>-year-old who loves <hobby>, <n> kids, <few> hours.", "I'm moving from <city> to <city> on <date>. Write a checklist, starting <few> weeks before.", "Moving house in <n> days, nothing packed, two cats. What first?", "Put together a project plan for <project>: <few> people, <n> weeks, with milestones.",
    "Break <project> down into tasks I can do in <big> minutes each.", "Make a cleaning schedule for a flat shared by <few> people.", "Help me organise my day. I have: <errand> at <time>, <errand>, <errand>, and <big> minutes for <hobby>.", "What should an agenda for a <big>-minute meeting on <matter> look like?",
    "I earn <money> a week and spend too much on <hobby>. How could I set up a simple budget with envelopes?", "We have <money> for redecorating a <room>. What would you spend it on, roughly?", "Plan a garden for a balcony of <few> by <few> metres, north-facing, with <flower>.", "Road trip <city> to <city>, <few> drivers, <n> days, kids aged <few> and <n>. Where do we stop?",
    "Suggest a date night in <city> for under <money>.", "Create a reading list of <n> books about <topic> for <few> months.", "Morning routine: I get up at <time> and must leave <big> minutes later, help", "Plan a lesson of <big> minutes on <topic> for <n> pupils aged <n>.",
    "Here's what I have to do this week. Put it in a sensible order and say why.\n- <errand>\n- <errand>\n- <errand>\n- <errand>", "Make a timetable for a school fair with <n> stands, open <time> to <time>.", "Our team of <n> needs an off-site day near <city> in <month>, <money> a head. Ideas?", "My <relative> visits for <few> days and <fitness>. What could we do in <city> when it rains?",
    "A <diet> menu with <few> courses for <occasion>, <n> guests, <few> of them allergic to nuts.", "Set up a watering plan for <n> house plants while I'm away from <date> for <n> days.",
];

#[rustfmt::skip]
const KNOWLEDGE: &[&str] = &[
    "What is the capital of <country>?", "Which languages are spoken in <country>?", "What is <country> famous for?", "Is <city> worth visiting in <month>?", "Which river flows through <city>?", "Where is <city> and how many people live there?", "Who was <person>?", "When did <person> live?", "what did <person> do that was so important",
    "Tell me about the life of <person> in <few> sentences.", "Did <person> and <person> ever meet?", "Who wrote <novel>?", "What is <novel> about?", "Who painted <painting> and where does it hang?", "Who invented <invention>?", "When was <invention> invented, and in which country?", "What was used before <invention>?",
    "What does the <organ> do?", "Can you live without the <organ>?", "What are the symptoms of <illness>?", "Is <illness> contagious?", "Define <term>.", "What does <term> mean?", "meaning of <term>, with an example sentence", "What's the origin of the word <term>?", "What caused <event>?", "When did <event> begin and end?", "Who were the main figures in <event>?",
    "Give me <few> facts about <event>.", "How did <event> change everyday life?", "Compare <pair>.", "What is the difference between <pair>?", "Which is older, <invention> or <invention>?", "Do <animal> sleep at night?", "How long do <animal> live?", "What do <animal> eat in winter?", "Are <animal> found in <country>?", "Is it true that <myth>?",
    "Somebody told me <myth>. Is that right?", "What are the rules of <sport>?", "How many players are in a team in <sport>?", "Where does <dish> come from?", "What goes into a traditional <dish>?", "Is <ingredient> good for you?", "Can dogs eat <ingredient>?", "How should I store <ingredient>?", "What is <law>?", "Is there <law> in <country>?",
    "Who is the head of state of <country>, and how is that person chosen?", "What time is it in <city> when it is <time> in <city>?", "Which currency do they use in <country>?", "Do I need a visa for <country> for a stay of <n> days?", "What is the highest mountain in <country>?", "Name <few> composers from <country>.", "List <n> animals that live in <country>.",
    "Which planet has the most moons?", "Why is the year 1492 remembered?", "Which gas do plants take in?", "What does HTTP status 418 mean?", "who won the first football world cup", "How many strings does a <instrument> have?", "Which famous pieces were written for the <instrument>?", "What is the <instrument> made of?", "What does the abbreviation <abbreviation> stand for?", "<abbreviation>?? what is that",
    "Do you know <fact>?", "can you tell me <fact>", "I'd like to know <fact> and <fact>.", "Remind me <fact>, please.", "My <relative> and I can't agree on <fact>. Can you settle it?", "We are preparing a pub quiz for <weekday> with <n> teams. Please tell me <fact>, <fact> and <fact>.", "I'm reading about <event> at the moment and wondered <fact>.",
    "In class <name> asked <fact>. I only knew <fact>. What would have been a good answer?", "On a walk in <city> my <relative>, who is <n>, wanted to know <fact>, and I wasn't sure. I think I learned it at school <n> years ago, but I've forgotten. Could you give a correct answer in <few> sentences?",
];

#[rustfmt::skip]
const EXPLAINING: &[&str] = &[
    "Explain <topic> to <listener>.", "Explain <topic> like I'm <few>.", "Can you explain in simple terms how <mechanism> works?", "How does <mechanism> work? I'm a <profession>, so no jargon.", "Why <why>?", "my kid asked me why <why> and i had no answer", "What's the difference between <pair>, and when does it matter?",
    "Pros and cons of <choice>?", "Should I go for <choice> or <choice>?", "I'm thinking about <choice>. What should I consider? I have <money> saved and <few> children.", "<trouble> What would you do?", "Advice needed. <trouble>", "<trouble> How do I bring it up with <recipient>?", "I've been feeling tired for <n> days although I sleep <few> hours. Should I see a doctor?",
    "How can I get better at <hobby>?", "Give me <n> tips for <hobby> as a beginner.", "Brainstorm <n> ideas for <project>.", "Recommend <few> books similar to <novel>.", "Can you recommend a film for <audience>? We liked <genre> stories.", "What's your opinion on <topic>?", "Is <choice> a good idea at the age of <big>?", "What is a good present for my <relative>, about <money>, who likes <hobby>?",
    "Walk me through <chore> step by step.", "How do I <fix>?", "I tried to <fix> for <few> hours and gave up. What am I doing wrong?", "Teach me the basics of <topic> in <few> short lessons.", "Give an analogy for <topic>.", "What are common misconceptions about <topic>?", "Argue for and against <choice>.", "Summarise what's known about <topic> and what is still disputed.",
    "Why do people enjoy <hobby>?", "How do I explain <topic> in a job interview as a <profession>?", "What questions should I ask before <choice>?", "How would the world look without <invention>?", "Convince me that <hobby> is worth <big> minutes a day.", "What happens if you mix up <pair>?", "Is it rude to <rude> in <country>?", "My landlord in <city> says: \"<sentence>\" Is that normal?",
    "I got this message from my <relative>. What does it really mean?\n\n\"<sentence>\"", "Interview me for a <profession> job: ask <few> questions, one at a time.",
    "I'm <big>, live in <city> and work as a <profession>. <trouble> My <relative> says I should just ignore it. What do you think?", "My <relative> thinks <choice> is a waste of money, I think it pays off after <few> years. Who's right?", "For a podcast episode on <topic> I need <few> good questions and a simple example that <audience> will understand.",
];

#[rustfmt::skip]
const CODE: &[&str] = &[
    "Write a <lang> function that <todo>.", "write a function in <lang> that <todo>, no external libraries", "Could you show me how to write a <lang> program which <todo>?", "<lang>: <todo>", "Implement a function `<func>` in <lang>. It <todo>. Add comments.", "I need a small <lang> script that <todo>. It runs on <few> machines every night.",
    "Write a Python class <class> with the attributes <column>, <column> and <column> and a readable repr.", "Create a TypeScript interface for <class> with <column> and an optional <column>.", "Write a Java class <class> with a builder.", "Write a Rust struct <class> with <n> tests.", "Design a C++ class <class> that can be compared by <column>.", "Write a Go HTTP handler that returns a <class> as JSON.",
    "Write an SQL query for <query>.", "sql: <query>. tables are orders(id, customer_id, total, created_at) and customers(id, name, city)", "How do I select <query> in Postgres? MySQL would be fine, too.", "Regex that matches <pattern>?", "Write a regular expression in <lang> for <pattern> and explain each part.", "This regex should match <pattern> but doesn't: `^[a-z]+\\d<few>$`",
    "Bash one-liner to <shell>.", "how can i <shell> from the command line", "Write a bash script to <shell>, with a dry-run flag.", "Write <config>.", "Can you give me <config>? Please comment every line.", "What is wrong with this config?\n\n<yaml>", "Add a second service to this file:\n```yaml\n<yaml>\n```",
    "Build <webpart> with HTML and CSS, no JavaScript.", "Make <webpart> in React.", "How do I center <webpart> horizontally and vertically?", "Why doesn't this render properly?\n\n<htmlcode>", "Fix this bug:\n\n<fenced>", "<fenced>\n\nWhy does this not work?", "This <symptom>. Where's the mistake?\n<fenced>", "My code <symptom>, please help\n\n<fenced>",
    "Explain this code line by line.\n\n<fenced>", "what does this do\n<snippet>", "Add unit tests for the following:\n\n<fenced>", "Refactor this so that it is easier to read:\n<fenced>", "Convert this to <lang>:\n\n<fenced>", "Rewrite in idiomatic <lang>, please.\n\n<fenced>", "Review this code for <name>. Be honest.\n\n<fenced>", "Is this thread-safe?\n\n<fenced>",
    "What is the time complexity of this, and can it be made faster for <big>000 elements?\n<fenced>", "Add type hints and a docstring.\n\n```python\n<pycode>\n```", "Write documentation for this function:\n<fenced>", "Add error handling to this.\n\n<fenced>", "I get this error:\n\n<error>\n\nWhat does it mean?", "<error>\n\nhow do i fix this", "Since <weekday> our build fails with\n```\n<error>\n```\nNothing was changed. Any idea?",
    "Here is the code and what it prints.\n\n<fenced>\n\n<error>", "Optimise this query, it takes <n> seconds:\n```sql\n<sqlcode>\n```", "How do I undo the last <few> commits in git without losing my changes?", "git says I'm <n> commits ahead and <few> behind. What now?", "Which library would you use in <lang> for a tool that <todo>?", "What's the difference between <codepair>?", "When should I use <codepair> in <lang>?",
    "Write a command-line tool in <lang> with the options --<column> and --<column>. It <todo>.", "Generate <n> rows of fake test data for a table with <column>, <column> and <column> as SQL inserts.", "Write a unit test in <lang> for a function that <todo>.", "Name this function better: `<func>_<few>`. It <todo>.", "Port this shell script to Python\n\n<bashcode>", "Write a commit message for this change:\n\n<diff>", "Review my diff.\n```diff\n<diff>\n```",
    "Write a REST API with <few> endpoints for a service around <class> in <lang>.", "Simulate a simple <sport> scoreboard in <lang>.", "Please write a cron entry that starts backup.sh every <weekday> at <time>.", "Make this function async.\n\n```js\n<jscode>\n```",
];

#[rustfmt::skip]
const REWRITING: &[&str] = &[
    "Summarise the following text in <few> sentences.\n\n<passage>", "Summarize:\n<passage>", "tl;dr please\n\n<passage>", "<passage>\n\nWhat is the main point of this text?", "Give me the gist of this in at most <big> words: <passage>", "Translate into <language>: <sentence>", "Translate this to <language>, please.\n\n\"<sentence>\"", "How would you say \"<sentence>\" in <language>?",
    "Translate the text below into <language> and keep the paragraphs.\n\n<passage>", "Translate from English to <language> and then back, and show me both:\n<sentence>", "Proofread this: <typos>", "Correct spelling and grammar, change nothing else.\n\n<typos>", "is this correct english? \"<typos>\"", "Make this more formal: <casual>", "Rewrite this so I can send it to <recipient>:\n\n<casual>", "Make this sound <adjective>.\n\n<casual>",
    "Shorten this to about <big> words.\n\n<passage>", "Make this half as long:\n<passage>", "Turn this into bullet points:\n\n<passage>", "Put the following into <few> bullet points for <audience>.\n<passage>", "Extract the action items.\n\n<notes>", "Who has to do what by when?\n\n<notes>", "Clean up my notes:\n<notes>", "Write minutes from these notes, <adjective>:\n\n<notes>", "Suggest a title for this text:\n\n<passage>", "Give me <few> headlines for this article. <passage>",
    "Rewrite this for <listener>:\n\n<passage>", "Retell this as a <poemform>:\n<passage>", "Rephrase without the passive voice: <sentence>", "Paraphrase this sentence in <few> different ways: \"<sentence>\"", "Change the tone of this mail to <adjective>:\n\n<mail>", "Summarise this e-mail in one line.\n\n<mail>", "Here's my draft:\n\n<mail>\n\nDoes it sound rude? Improve it.", "Put this in the past tense:\n<sentence> <sentence>", "Use British spelling throughout.\n\n<passage>",
    "Rewrite the paragraph from the point of view of <hero>.\n\n<passage>", "Expand this into a paragraph of <big> words: <sentence>", "Combine these sentences into one:\n- <sentence>\n- <sentence>", "Make it rhyme: <sentence>", "Simplify for someone who learns English (level A2):\n\n<passage>", "Write <few> comprehension questions about this passage.\n\n<passage>", "Which of these two reads better, and why?\n1. <sentence>\n2. <casual>",
];

#[rustfmt::skip]
const DATA: &[&str] = &[
    "Return a JSON object with the keys \"title\", \"summary\" and \"tags\" for this text:\n\n<passage>", "Reply only with JSON: {\"language\": ..., \"topic\": ..., \"tone\": ...}\n\nText: <sentence>", "Extract all names and dates from the text below as JSON.\n\n<notes>", "List every name, time and place mentioned here:\n<mail>", "From this e-mail get \"sender\", \"date\" and \"request\" as valid JSON, null if missing.\n\n<mail>",
    "Classify the sentiment of this review as positive, negative or neutral: \"<review>\"", "Sentiment? one word\n\n<review>", "For each review say whether it is about price, quality or delivery.\n1) <review>\n2) <review>\n3) <review>", "Rate the following on a scale from 1 to <few> stars and give the reason as JSON.\n<review>", "Is this message spam? Answer yes or no.\n\n<mail>", "Which department should handle this ticket, billing, sales or support?\n\n\"<review>\"",
    "Make a Markdown table from this:\n<row>\n<row>\n<row>", "Turn this into CSV with the header name;age;city\n\n<row>\n<row>\n<row>\n<row>", "Convert this CSV to JSON:\n\n<csv>", "Convert to a YAML list:\n<csv>", "<csv>\n\nFormat this as an HTML table.", "Which rows are incomplete?\n\n<csv>\n<name>,,<n>", "Sort this list alphabetically: <thing>, <fruit>, <baked>, <flower>, <ware>, <vehicle>", "sort by city please\n<row>\n<row>\n<row>\n<row>",
    "Remove the duplicates from this list and number it:\n<fruit1>\n<baked>\n<fruit1>\n<drink>\n<baked>", "Convert these to metric and list them line by line: <n> miles, <big> pounds, <n> feet, <big> °F, <few> gallons", "Convert the recipe amounts to grams: <few> cups flour, <n> oz butter, <few> tbsp sugar, <ingredient>.", "Fill in this form from the text.\n\nName:\nCity:\nPhone:\nReason:\n\nText: Hi, this is <name> <surname> calling from <city>. My number is 0<big> <big><big>. I am calling because <grievance>. Please call back.",
    "Create a table with <n> <things> and the columns <column>, <column> and <column>.", "Generate a list of <n> <things>, one per line, no numbering.", "Give me <n> <things> as a JSON array of strings.", "Make a comparison table of <pair> with <few> criteria.", "What does this log tell us? Return a list of {time, level, cause}.\n\n<log>", "Count the errors by type:\n<log>", "Pull the hashtags and mentions out of this post: <sentence> #<hobbytag> @<hobbytag>_<city> #<hobbytag>",
    "Rewrite these dates as YYYY-MM-DD: <date>, <date>, <date>", "Group these into categories: <ingredient>, <vehicle>, <fruit>, <gadget>, <ingredient>, <vehicle>", "Make flash cards (question;answer) from this:\n\n<passage>", "Extract (subject, relation, object) triples.\n\n<passage>", "Create a calendar entry in iCal format: <errand>, <date>, <time>, <city>.", "Tag each word of this sentence with its part of speech: <sentence>", "Fill the gaps in this template with the data below.\n\nDear [NAME], your order of [ITEM] ships on [DATE].\n\n<name> <surname> / <product> / <date>",
];

/// The words of a list, which may have slots themselves; none if there is no such list.
#[rustfmt::skip]
fn list(name: &str) -> &'static [&'static str] {
    match name {
        "opening" => &["Hi! ", "Hello, I hope you can help me. ", "Quick question. ", "hey, ", "Hi there,\n\n", "I need a hand with something. ", "ok so... ", "Good morning. ", "Sorry to bother you again. ", "Next one: ", "Another thing: ", "Please help! ", "It's <name>'s idea, but here goes. ", "You are a helpful <profession>. ", "Not urgent: "],
        "closing" => &["Thanks!", "Thank you in advance.", "Please keep it short.", "Keep it under <big>0 words.", "Be concise.", "No preamble, please.", "I'm on my phone, so make it compact.", "thx", "Cheers, <name>", "Use simple language.", "I need it by <weekday>.", "Just the result, no explanation.", "And please explain briefly why.", "It's for <recipient>.", "Take your time."],
        "hello" => &["Hi", "Hello", "Hey", "Good morning", "Good evening", "hi there", "Hello again", "Hiya", "Howdy", "Good afternoon", "hey hey"],
        "mark" => &["!", ".", " :)", "!!", "...", " 😊", ","],
        "smalltalk" => &["How are you today?", "how's it going?", "Nice to meet you.", "What's new?", "I just got home from <city>.", "it's raining here in <city> again", "I'm bored.", "Hope you're having a good <weekday>.", "I just finished my coffee.", "Ready for <hobby>?", "did you miss me?", "How was your <weekday>?", "It's only <time> and I'm tired already.", "Tell me something nice."],
        "helped" => &["helped a lot", "was exactly what I needed", "worked first time", "saved my <weekday>", "made my <relative> very happy", "cleared it up", "was really useful for <hobby>", "fixed it in <n> minutes"],
        "favourite" => &["season", "colour", "word", "kind of music", "<genre> film", "way to spend a <weekday>", "place in <city>", "thing about <hobby>"],
        "name" => &["Anna", "Priya", "Tom", "Lena", "Marcus", "Yusuf", "Chloe", "Diego", "Hannah", "Kenji", "Olivia", "Sam", "Fatima", "Ben", "Ingrid", "Rosa", "Liam", "Mei", "Noah", "Zara"],
        "surname" => &["Becker", "Okafor", "Lindqvist", "Marsh", "Petrov", "Nakamura", "Delgado", "Hughes", "Romano", "Singh", "Novak", "Fraser"],
        "city" => &["Lisbon", "Kyoto", "Rome", "Edinburgh", "Prague", "Vancouver", "Barcelona", "Istanbul", "New Orleans", "Copenhagen", "Marrakesh", "Vienna", "Hanoi", "Chicago", "Dublin", "Buenos Aires", "Cape Town", "Melbourne", "Naples", "Kraków"],
        "country" => &["Portugal", "Japan", "Kenya", "Peru", "Norway", "Canada", "Vietnam", "Italy", "Morocco", "New Zealand", "Greece", "Brazil", "Iceland", "Thailand", "Poland", "Mexico", "Egypt", "South Korea", "Finland", "Chile"],
        "language" => &["French", "German", "Spanish", "Italian", "Japanese", "Portuguese", "Polish", "Dutch", "Turkish", "Swedish", "Arabic", "Korean"],
        "month" => &["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"],
        "date" => &["<n> <month>", "<month> <n>", "<n> <month> 2025", "<weekday>, <n> <month>", "<few>/<n>/2024", "<n>.<few>.2026", "<month> 1<few>th"],
        "time" => &["6:45", "7:30", "8 am", "9:15", "10:00", "noon", "1:30 pm", "14:00", "3 p.m.", "17:45", "half past six", "20:15"],
        "few" => &["2", "3", "4", "5", "6", "7", "3", "4", "5"],
        "big" => &["20", "25", "30", "35", "40", "45", "50", "60", "75", "80", "90", "100", "120", "150"],
        "money" => &["<big> euros", "$<big>", "£<big>", "<big> dollars", "€<big>0", "<few>00 pounds", "<few>,500 USD", "<n> bucks", "CHF <few>00"],
        "tone" => &["a polite", "a friendly", "a formal", "a short", "a firm but kind", "an informal", "an apologetic", "a cheerful", "a <big>-word"],
        "adjective" => &["warm", "funny", "professional", "confident", "less angry", "serious", "gentle", "friendlier", "matter-of-fact", "enthusiastic", "humble", "more direct"],
        "recipient" => &["my boss", "my landlord", "our neighbours", "the school", "my <relative>", "a client in <city>", "the head of HR", "Mr <surname>", "Dr. <surname>", "Ms. <surname>", "the tax office", "my whole team", "my professor", "customer service at <company>"],
        "matter" => &["the broken heating", "moving our meeting to <weekday>", "a pay rise after <few> years", "the noise after <time>", "an unpaid invoice of <money>", "taking <n> days off in <month>", "the leaking pipe in the <room>", "my late submission", "a lost parcel", "the change of plans for <occasion>", "bikes parked in the hallway", "the budget for <project>"],
        "poemform" => &["poem", "haiku", "sonnet", "limerick", "short poem", "ballad", "nursery rhyme", "free-verse poem", "rap", "poem of <few> stanzas"],
        "theme" => &["autumn leaves", "my <relative>'s <vehicle>", "the last train to <city>", "a lost umbrella", "friendship", "<flower> in <month>", "rain on a <weekday>", "a cat that hates <weekday>s", "growing old", "the sea at night", "homesickness in <city>", "a broken <gadget>", "the smell of <baked>", "first snow"],
        "hero" => &["a shy dragon", "a retired <profession>", "a talking <gadget>", "two <animal>", "a girl from <city>", "a robot named <name>", "a lighthouse keeper", "a forgetful wizard", "a <colour> fox", "the last <profession> on Earth", "a stubborn <gadget> seller"],
        "quest" => &["gets lost in <city>", "learns to <cando>", "finds <n> old letters", "wants to win a <sport> match", "is afraid of <animal>", "has to cross <country> in <few> days", "wakes up as a <profession>", "opens a <shop>"],
        "cando" => &["swim", "say no", "bake <baked>", "trust people", "play the <instrument>", "speak <language>", "dance"],
        "genre" => &["crime", "fantasy", "science-fiction", "romantic", "ghost", "historical", "western", "coming-of-age", "comedy", "noir"],
        "storystart" => &["The key had been in <name>'s pocket for <n> years, and it had never fitted anything until that <weekday> in <city>.", "When the <place> closed for good, <name> stayed behind the counter and pretended to count <thing>.", "\"You are late,\" said the <colour> cat, \"and you forgot the <fruit>.\"", "Nobody in the village spoke of the <room> upstairs. <name>, who was only <n>, asked anyway.", "It was <time> when the lights of <city> went out, all of them, and the sea began to hum."],
        "occasion" => &["my <relative>'s wedding", "a retirement party", "a housewarming", "our company's <big>th anniversary", "a graduation", "a baby shower", "the <club>'s summer party", "my parents' golden wedding", "a charity dinner", "a farewell party for <name>"],
        "product" => &["a bamboo toothbrush", "a folding bicycle", "an app that reminds you to drink water", "handmade <ware>", "a solar lamp", "organic <fruit>", "a noise-cancelling headset", "a set of <n> <ware>", "a <colour> raincoat for dogs", "a weighted blanket", "an e-reader", "a box of <baked>"],
        "business" => &["a <shop>", "a vegan <shop>", "a dog-walking service", "a small brewery", "a podcast about <hobby>", "a repair café", "a yoga studio", "a start-up for <product>", "a school that teaches <language>", "a band from <city>", "a <sport> club"],
        "company" => &["Northlight Ltd", "Brightwater Energy", "Kestrel Airlines", "Fernway Hotels", "Parcelo", "Tidemark Bank", "Greenfold Foods", "Mapleline Telecom", "<surname> & Sons"],
        "audience" => &["teenagers", "busy parents", "retired people", "first-year students", "managers", "families with small kids", "people who hate <hobby>", "beginners", "tourists in <city>"],
        "news" => &["got promoted to <profession>", "finished my thesis on <topic>", "left <company> after <n> years", "moved to <city>", "ran my first <distance>", "opened <business>", "learned <language>"],
        "profession" => &["nurse", "teacher", "data analyst", "carpenter", "project manager", "barista", "translator", "librarian", "software developer", "physiotherapist", "pastry chef", "tax adviser", "journalist"],
        "jobad" => &["<company> is looking for a <profession> (m/f/d) in <city>, <big> % part-time, starting in <month>. You enjoy working with people and speak <language>.", "WANTED: <profession>, <few> days a week. <n> days of holiday, friendly team, free <fruit>. Send your CV to <name> <surname> before <date>.", "We need a <profession> with <few>+ years of experience. Remote is fine. Knowledge of <lang> is a plus."],
        "grievance" => &["the <gadget> arrived broken", "the flight to <city> was <n> hours late", "I was charged <few> times", "the room was dirty", "nobody answered for <n> days", "you sent <thing> instead of <ware>", "the appointment on <weekday> was forgotten", "the internet has been down since <weekday>"],
        "hobby" => &["hiking", "knitting", "chess", "baking", "gardening", "running", "photography", "bird-watching", "board games", "salsa dancing", "cycling", "painting", "playing the <instrument>", "climbing", "cooking <dish>", "fishing"],
        "hobbytag" => &["hiking", "knitting", "chess", "foodie", "running", "photo", "birds", "climbing", "travel", "plants"],
        "sport" => &["cricket", "handball", "ice hockey", "volleyball", "rugby", "badminton", "water polo", "curling", "baseball", "table tennis"],
        "instrument" => &["cello", "piano", "ukulele", "oboe", "banjo", "harp", "trumpet", "viola", "accordion", "sitar"],
        "diet" => &["vegetarian", "vegan", "gluten-free", "low-carb", "cheap", "high-protein", "child-friendly", "Mediterranean", "dairy-free"],
        "dish" => &["lasagne", "ramen", "shakshuka", "paella", "pierogi", "chilli", "ratatouille", "dal", "moussaka", "goulash", "tiramisu", "fish pie", "falafel"],
        "ingredient" => &["chickpeas", "spinach", "eggs", "leftover rice", "sweet potatoes", "feta", "mushrooms", "salmon", "red lentils", "ginger", "tofu", "courgettes", "coconut milk", "honey"],
        "fitness" => &["sits all day", "can run <few> km", "has a bad knee", "hasn't done any sport for <n> years", "can only train at home", "is <big> years old", "swims on <weekday>s", "gets bored easily"],
        "distance" => &["10k", "half marathon", "marathon", "5 km run", "triathlon", "<big> km bike ride"],
        "project" => &["a new company website", "a school theatre play", "a community garden", "writing a novel", "digitising <big>0 old photos", "renovating a <room>", "a fundraiser for the <club>", "building a <gadget> stand", "launching <business>", "a podcast about <topic>", "a science fair"],
        "errand" => &["dentist", "call the bank", "buy <fruit> and <baked>", "pick up <name> from the <place>", "finish the report for <company>", "laundry", "repair the <gadget>", "renew my passport", "<sport> practice", "tax return", "water the <flower>", "parents' evening"],
        "person" => &["Ada Lovelace", "Marie Curie", "Simón Bolívar", "Hypatia", "Nelson Mandela", "Johannes Kepler", "Frida Kahlo", "Ibn Battuta", "Florence Nightingale", "Genghis Khan", "Rosa Parks", "Ludwig van Beethoven", "Cleopatra", "Alan Turing", "Hokusai", "Catherine the Great"],
        "novel" => &["Middlemarch", "Don Quixote", "The Trial", "Frankenstein", "One Hundred Years of Solitude", "Things Fall Apart", "Pride and Prejudice", "Moby-Dick", "The Odyssey", "Dracula", "Anna Karenina", "Brave New World"],
        "painting" => &["The Night Watch", "Guernica", "The Starry Night", "Las Meninas", "The Birth of Venus", "The Scream", "Girl with a Pearl Earring", "Impression, Sunrise", "The Great Wave"],
        "invention" => &["the telephone", "the printing press", "the zip", "dynamite", "the bicycle", "penicillin", "the light bulb", "the steam engine", "the microwave oven", "paper", "the World Wide Web", "the compass", "the refrigerator", "Velcro"],
        "organ" => &["spleen", "liver", "pancreas", "thyroid", "appendix", "gall bladder", "cerebellum", "left kidney", "retina"],
        "illness" => &["measles", "asthma", "appendicitis", "anaemia", "diabetes", "shingles", "migraine", "pneumonia", "scurvy", "tonsillitis"],
        "term" => &["'serendipity'", "inflation", "photosynthesis", "hubris", "osmosis", "gerrymandering", "entropy", "'ad hoc'", "mitosis", "subsidiarity", "onomatopoeia", "habeas corpus", "plate tectonics", "zeitgeist", "amortisation", "stoicism", "catharsis"],
        "event" => &["the French Revolution", "the First World War", "the Great Depression", "the Cuban Missile Crisis", "the Black Death", "the fall of the Berlin Wall", "the Industrial Revolution", "the Meiji Restoration", "the Boston Tea Party", "the Thirty Years' War", "the Space Race"],
        "pair" => &["weather and climate", "alligators and crocodiles", "stocks and bonds", "jam and marmalade", "a virus and a bacterium", "Gothic and Baroque architecture", "civil law and common law", "baking soda and baking powder", "empathy and sympathy", "a barrister and a solicitor", "AC and DC", "comets and asteroids", "jazz and blues", "leasing and renting", "a meteor and a meteorite", "butter and margarine", "Buddhism and Hinduism", "e-bikes and mopeds", "<instrument>s and guitars", "<city> and <city>"],
        "animal" => &["hedgehogs", "octopuses", "bats", "penguins", "giant tortoises", "foxes", "honeybees", "squirrels", "storks", "wolves", "otters", "camels", "jellyfish"],
        "myth" => &["goldfish forget everything after <few> seconds", "we use only 10 % of our brains", "the Great Wall is visible from the Moon", "lightning never strikes twice", "carrots improve your eyesight", "bulls hate the colour red", "hair grows faster after shaving", "bananas grow on trees", "glass is a liquid", "you lose most heat through your head", "Vikings wore horned helmets", "honey never goes bad"],
        "law" => &["a statute of limitations", "a non-compete clause", "double jeopardy", "a right to be forgotten", "a power of attorney", "jury duty", "a writ", "small claims court", "inheritance tax", "freedom of panorama"],
        "abbreviation" => &["NASA", "RSVP", "DNA", "UNESCO", "GDP", "CPU", "FAQ", "MRI", "LED", "NGO", "PDF", "VAT", "AWOL", "SQL"],
        "fact" => &["who <person> was", "what the <organ> does", "where <dish> comes from", "who invented <invention>", "what caused <event>", "what <term> means", "whether <myth>", "who wrote <novel>", "who painted <painting>", "what the capital of <country> is", "what <abbreviation> stands for", "how long <animal> live", "whether <illness> is contagious", "how <sport> is scored", "when <event> took place", "why <person> is famous", "what money is called in <country>"],
        "topic" => &["black holes", "compound interest", "democracy", "vaccines", "blockchain", "evolution", "inflation", "neural networks", "the water cycle", "quantum entanglement", "the stock market", "mindfulness", "supply and demand", "the greenhouse effect", "time zones", "encryption", "the Silk Road", "recycling", "gravity", "sleep", "plastic in the oceans", "remote work", "ancient <country>"],
        "listener" => &["a <few>-year-old", "my grandmother", "a high-school student", "a complete beginner", "an alien", "someone who hates science", "a class of <n> pupils", "a <profession>", "a curious child"],
        "mechanism" => &["a heat pump", "a refrigerator", "GPS", "a sewing machine", "the immune system", "a nuclear reactor", "Wi-Fi", "a credit score", "yeast", "a lock on a canal", "noise cancelling", "the electoral college", "a touchscreen", "a mortgage", "a catalytic converter", "memory", "a rainbow"],
        "why" => &["is the sky blue", "do cats purr", "does bread rise", "are leaves green", "do we dream", "is the sea salty", "do onions make you cry", "does ice float", "do leap years exist", "do people yawn", "are flamingos pink", "do planes leave white trails", "do we have <n> kinds of taxes", "does metal feel cold", "do prices rise"],
        "choice" => &["buying an electric car", "working from home", "renting instead of buying a flat", "getting a dog", "going back to university", "moving to <city>", "a four-day week", "quitting social media", "adopting a <diet> diet", "becoming a <profession>", "solar panels on the roof", "learning <language>", "freelancing", "home-schooling", "lending my <relative> <money>"],
        "trouble" => &["My <relative> owes me <money> and keeps avoiding me.", "My colleague <name> takes credit for my work.", "I can't fall asleep before <time>.", "I have <few> job offers and can't decide.", "My best friend hasn't answered for <n> days.", "Our neighbours play the <instrument> every <weekday>.", "I spend <few> hours a day on my phone.", "My <relative> wants to move in with us for <few> months.", "I said something stupid at <occasion>.", "My back hurts after <hobby>.", "I'm <big> and want to become a <profession>."],
        "chore" => &["changing a bicycle tyre", "opening a bank account in <country>", "descaling a kettle", "repotting <flower>", "writing a will", "making sourdough", "filing a tax return", "ironing a shirt", "backing up a laptop", "hanging a picture that weighs <n> kg"],
        "fix" => &["unclog a sink", "get red wine out of a carpet", "stop my <gadget> from squeaking", "reset my router", "keep <animal> out of the garden", "say no to <recipient>", "negotiate <money> more", "memorise a speech of <few> minutes", "make friends in <city>", "remove a stripped screw"],
        "rude" => &["tip <n> percent", "arrive <big> minutes late", "eat on the train", "refuse a second helping", "use first names", "wear shoes indoors", "bring <flower> as a gift"],
        "things" => &["dog names", "icebreaker questions", "words that rhyme with 'light'", "European rivers", "team-building games", "vegetables", "job titles", "towns in <country>", "<diet> snacks", "<sport> terms", "<language> verbs", "synonyms for 'happy'"],
        "lang" => &["Python", "JavaScript", "TypeScript", "Rust", "Go", "Java", "C++", "Bash", "C#", "Kotlin", "Python", "PHP", "Ruby"],
        "func" => &["process", "collect", "lookup", "refresh", "summarise", "tally", "extract", "resolve", "normalize", "dispatch"],
        "class" => &["Order", "Invoice", "Customer", "Booking", "Playlist", "Sensor", "Ticket", "Recipe", "Account", "Shipment"],
        "column" => &["price", "name", "email", "quantity", "status", "city", "total", "rating", "weight", "country"],
        "file" => &["report", "main", "orders", "import_data", "utils", "server", "backup", "users"],
        "todo" => &["removes duplicates from a list without changing the order", "checks whether a string is a palindrome", "flattens a nested list", "counts how often each word occurs in a text file", "validates an email address", "returns the weekday of a date like 2024-03-15", "merges two sorted lists", "retries a request up to <few> times", "converts Roman numerals to integers", "renames all files in a folder to lower case", "groups records by <column>", "generates a random password of <n> characters", "prints the <n> largest values of the column <column> in a CSV file", "rotates a matrix by 90 degrees", "computes a moving average over <n> values", "resizes all images in a folder to <big>0 pixels", "debounces another function", "turns snake_case into camelCase", "downloads a web page and lists its links", "caches results for <big> seconds", "sorts a list of <class> objects by <column> and <column>", "finds the shortest path in a grid"],
        "query" => &["all customers without an order in the last <big> days", "the <n> best customers by total", "the average total per <column> and month", "duplicate rows in <column>", "the second highest <column>", "orders above <big>0 from <city>", "customers whose <column> is null", "the running total per customer", "the number of orders per weekday"],
        "pattern" => &["UK postcodes", "hex colours such as #ff8800", "ISO dates", "IPv4 addresses", "phone numbers like +49 30 <big><big>", "words of at least <few> letters", "URLs with https", "prices like $<n>.99", "quoted strings", "everything between two brackets", "file names that end in .<few>.log"],
        "shell" => &["find all files larger than <big> MB under /var", "delete log files older than <n> days", "count the lines of all .py files", "kill whatever listens on port 80<few>0", "list the <n> biggest folders", "replace '<column>' by '<column>' in all .txt files", "show the last <big> lines of <file>.log and follow it", "copy a folder to another server", "extract the column <few> of <file>.csv", "compress every folder in the current directory", "rename *.jpeg to *.jpg"],
        "config" => &["a Dockerfile for a Flask app on port 80<few>0", "a docker-compose file with Postgres and Redis", "a GitHub Actions workflow that runs the tests on <few> versions of Python", "an nginx config that forwards to port 30<few>0", "a systemd unit for <file>.py", "a .gitignore for a <lang> project", "a Makefile with build, test and clean", "a tsconfig for a library", "a Kubernetes deployment with <few> replicas", "a GitLab CI pipeline with <few> stages", "an ESLint config without semicolons"],
        "webpart" => &["a responsive navbar", "a login form", "a pricing table with <few> columns", "a dark-mode toggle", "a photo gallery with <n> images", "a sticky footer", "a progress bar at <big>%", "a card with a <column> and a button", "a modal dialog", "a landing page for <business>"],
        "symptom" => &["prints nothing", "returns the wrong <column>", "crashes on an empty list", "is very slow with <big>000 rows", "works on my machine but not on the server", "gives a different result every time", "worked until <weekday>", "doesn't compile", "never stops"],
        "codepair" => &["a list and a tuple", "`==` and `===`", "an interface and an abstract class", "a thread and a process", "git merge and git rebase", "INNER JOIN and LEFT JOIN", "`let` and `const`", "a stack and a queue", "REST and GraphQL", "a pointer and a reference", "unit tests and integration tests", "String and &str"],
        "pycode" => &["def <func1>(items):\n    result = []\n    for i in range(len(items)):\n        if items[i] not in result:\n            result.append(items[i])\n    return result", "import csv\n\ntotal = 0\nwith open('<file>.csv') as f:\n    for row in csv.DictReader(f):\n        total += row['<column>']\nprint(total)", "class <class1>:\n    def __init__(self, <column1>, tags=[]):\n        self.<column1> = <column1>\n        self.tags = tags\n\n    def add(self, tag):\n        self.tags.append(tag)", "def <func1>(n):\n    if n < <few>:\n        return n\n    return <func1>(n - 1) + <func1>(n - 2)\n\nprint(<func1>(<big>))", "import requests\n\ndef <func1>(url):\n    r = requests.get(url)\n    data = r.json()\n    return [x['<column>'] for x in data if x['<column>'] > <n>]"],
        "jscode" => &["function <func1>(list) {\n  let out = [];\n  for (var i = 0; i <= list.length; i++) {\n    out.push(list[i].<column>);\n  }\n  return out;\n}", "const <func1> = (id) => {\n  fetch(`/api/<column>/${id}`)\n    .then(res => res.json())\n    .then(data => { return data.<column>; });\n};", "for (var i = 0; i < <n>; i++) {\n  setTimeout(() => console.log(i), <big>);\n}", "const total = items.reduce((sum, item) => sum + item.<column>);\nconsole.log('Total: ' + total.toFixed(2));"],
        "rustcode" => &["fn <func1>(words: &[String]) -> Option<String> {\n    let mut best: Option<String> = None;\n    for w in words {\n        if best.is_none() || w.len() > best.unwrap().len() {\n            best = Some(w.clone());\n        }\n    }\n    best\n}", "fn <func1>(text: &str) -> usize {\n    let mut count = 0;\n    for c in text.chars() {\n        if c == '<few>' { count += 1; }\n    }\n    count\n}", "let <column1> = vec![<n>, <n>, <n>];\nlet moved = <column1>;\nprintln!(\"{:?}\", <column1>);"],
        "gocode" => &["func <func1>(xs []int) int {\n\tmax := 0\n\tfor _, x := range xs {\n\t\tif x > max {\n\t\t\tmax = x\n\t\t}\n\t}\n\treturn max\n}", "for i := 0; i < <n>; i++ {\n\tgo func() {\n\t\tfmt.Println(i)\n\t}()\n}", "type <class1> struct {\n\ttitle string\n\t<column> int\n}\n\nfunc (o <class1>) Rename(title string) {\n\to.title = title\n}"],
        "javacode" => &["public static boolean <func1>(String a, String b) {\n    return a == b;\n}", "List<Integer> xs = new ArrayList<>(List.of(<n>, <n>, <n>));\nfor (Integer x : xs) {\n    if (x > <few>) xs.remove(x);\n}", "public class <class1> {\n    private int <column1>;\n    public int get() { return <column1>; }\n    public void set(int v) { <column1> = v; }\n}"],
        "cppcode" => &["#include <vector>\n\nint <func1>(std::vector<int> v) {\n    int s;\n    for (size_t i = 0; i < v.size(); ++i) s += v[i];\n    return s;\n}", "int* <func1>() {\n    int a[<n>] = {0};\n    return a;\n}", "std::string <func1>(const std::string& s) {\n    std::string r;\n    for (int i = s.size(); i >= 0; i--) r += s[i];\n    return r;\n}"],
        "sqlcode" => &["SELECT c.name, COUNT(*)\nFROM customers c\nLEFT JOIN orders o ON o.customer_id = c.id\nWHERE o.total > <big>\nGROUP BY c.<column>;", "SELECT * FROM orders\nWHERE YEAR(created_at) = 2024\n  AND customer_id IN (SELECT id FROM customers WHERE city = '<city>')\nORDER BY total DESC LIMIT <n>;", "UPDATE customers SET <column> = '<city>' WHERE id = <n> OR name = NULL;"],
        "bashcode" => &["for f in $(ls *.txt); do\n  mv $f ${f%.txt}_<few>.bak\ndone", "#!/bin/bash\nif [ $1 = '<column>' ]; then\n  cat <file>.log | grep ERROR | wc -l\nfi", "cd /srv/<file>\nrm -rf $TMP/*\ntar czf backup_<n1>.tgz .\nscp backup_<n1>.tgz host:/backups"],
        "htmlcode" => &["<div class=\"row\">\n  <ul>\n    <li><city>\n    <li><city></li>\n  </div>\n</ul>", "<style>\n.box { width: <big>%; float: left; margin: <n>px }\n</style>\n<div class=\"box\"><column></div>\n<div class=\"box\"><column></div>", "<form action=\"/save\">\n  <input name=\"<column>\">\n  <span onclick=\"submit\">Send</span>\n</form>"],
        "snippet" => &["<pycode>", "<jscode>", "<rustcode>", "<gocode>", "<javacode>", "<cppcode>", "<sqlcode>", "<bashcode>"],
        "fenced" => &["```python\n<pycode>\n```", "```py\n<pycode>\n```", "```js\n<jscode>\n```", "```rust\n<rustcode>\n```", "```go\n<gocode>\n```", "```java\n<javacode>\n```", "```cpp\n<cppcode>\n```", "```\n<snippet>\n```", "<snippet>", "<snippet>"],
        "yaml" => &["services:\n  web:\n    image: nginx:1.<n>\n    ports:\n      - \"80<few>0:80\"\n   depends_on: db", "on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: pytest -n <few>\n      - uses: actions/checkout@v4", "server:\n  port: 80<few>0\n  workers: <n>\nlogging:\n  level: debug\n  file: /var/log/<file>.log"],
        "diff" => &["-    timeout = <n>\n+    timeout = <big>\n     return <func>(timeout)", "-def <func1>(<column1>):\n+def <func1>(<column1>, strict=True):\n+    if strict and not <column1>:\n+        raise ValueError('<column1> is missing')", "-  const items = data.<column1>;\n+  const items = data?.<column1> ?? [];"],
        "error" => &["Traceback (most recent call last):\n  File \"<file>.py\", line <big>, in <module>\n    <func>(data)\nKeyError: '<column>'", "TypeError: Cannot read properties of undefined (reading '<column>')\n    at <func> (/app/src/<file>.js:<big>:<n>)", "error[E0382]: borrow of moved value: `<column>`\n --> src/main.rs:<big>:<n>", "panic: runtime error: index out of range [<n>] with length <few>\n\ngoroutine 1 [running]:\nmain.<func>(...)", "Exception in thread \"main\" java.lang.NullPointerException\n\tat app.<class>.<func>(<class>.java:<big>)", "ModuleNotFoundError: No module named '<file>'", "fatal: refusing to merge unrelated histories", "npm ERR! code ERESOLVE\nnpm ERR! Found: react@<n>.0.0", "Error: listen EADDRINUSE: address already in use :::80<few>0", "ERROR:  duplicate key value violates unique constraint \"<file>_<column>_key\"", "Segmentation fault (core dumped)", "<file>.cpp:<big>:<n>: error: no matching function for call to '<func>'", "docker: no space left on device (<few>.<few>G used)"],
        "sentence" => &["The train to <city> leaves at <time> from platform <n>.", "I'm sorry, but we are fully booked until <date>.", "Could you tell me where the nearest pharmacy is?", "The keys were left under the mat by <name>.", "My <relative> has lived in <city> for <n> years.", "Please don't feed the <animal>.", "We would like a table for <few> at <time>.", "I'll bring the <baked> if you bring the <drink>.", "The <gadget> was repaired yesterday, but it is still making a noise.", "If it rains on <weekday>, the match will be moved to <weekday>.", "Honestly, I had expected more from <city>.", "The rent goes up by <money> from <month>.", "Don't worry about <weekday>, it's fine, really.", "She reads every evening although she is tired."],
        "casual" => &["hey, can't come in on <weekday>, got a cold, soz", "u still owe me <money>, when do i get it", "The thing with the <gadget> is kinda broken and nobody cares, lol", "gonna be <big> mins late, start without me", "your price is way too high, make it <money> or forget it", "I need the numbers NOW, I asked <few> times already!!", "no clue what <name> did there but it doesnt work", "thx for the <ware>, super nice of u, see u in <city>"],
        "typos" => &["Their are <n> reasons why i recieve less mails then you.", "She dont know weather <name> are coming on <weekday>.", "I have went to <city> for <few> weeks and it's streets was beatiful.", "Me and my <relative> definately wants to by a new <gadget>.", "The informations you send me was very usefull, thank's alot.", "Yesterday i seen <few> <animal> who was seperated from there mother.", "We looking foward to here from you untill <date>"],
        "passage" => &["The old ferry across the bay stopped running in <month> after its engine failed for the third time. Commuters now take a bus around the shore, which adds almost an hour to the trip. The council has promised a replacement, but no date has been given. Cafés near the pier say they have lost half of their morning customers.", "Bumblebees can fly in weather that keeps honeybees at home. They warm up by shivering, and their dense fur holds the heat. This lets them visit early flowers on cold mornings.", "Our team tried a four-day week for <n> months. Output stayed about the same, sick days fell, and meetings became shorter. The only real trouble was customers who called on Fridays.", "A good sourdough needs little more than flour, water, salt and patience. The starter brings wild yeast and bacteria along, and they do the work overnight. <name> bakes <few> loaves every <weekday> and gives one away.", "Lighthouses once had keepers who trimmed the wicks, wound the clockwork and kept a log. When electric lamps came, one after another lost its crew. Today many are hotels or museums, and the ships rely on satellites.", "<company> reported sales of <big> million in the last quarter, slightly below the forecast. Higher freight costs and a strike in <city> were given as reasons. The board expects a better second half. The dividend remains unchanged.", "The tenant shall keep the <room> clean and report any damage within <n> days. Pets require written consent. At the end of the lease, the walls must be painted white.", "The <club> was founded by <few> friends in a cellar in <city>. Now it has over <big>0 members and a waiting list. What has not changed is the <weekday> evening, when everyone brings something to eat.", "Solar panels lose a little power when they get hot, so the best days are cool and bright. Dust matters less than most owners think, because rain removes it. Shade from a single chimney, however, can cost a surprising share of the yield.", "People who sleep badly often go to bed earlier, which tends to make it worse. Doctors advise a fixed time for getting up instead. Light in the morning, little caffeine after noon and a cool room help as well.", "The new release brings a faster search, a dark theme and <n> bug fixes. Settings from older versions are kept. Anyone who uses the import from <file>.csv should make a backup first, since the format has changed.", "My grandfather repaired clocks, and his workshop smelled of oil and oranges. I was allowed to wind the big one by the door on <weekday>s. When he died, we found that all of them had been set <few> minutes fast so that nobody would miss the bus to <city>.", "The city museum of <city> is showing maps that were never meant to be seen. Smugglers drew them on cloth and sewed them into coats. About <big> pieces survive. The exhibition is open until <date>.", "Octopuses taste with their arms. Each sucker has sensors that tell rock from crab before the brain has taken any notice. In the laboratory, some animals opened jars within <n> minutes."],
        "mail" => &["Hi <name>,\n\ncould we move our call from <weekday> to <date> at <time>? I'm in <city> that day.\n\nBest,\n<name> <surname>", "Dear <name>,\nthe offer for <product> has expired. If you are still interested, we can do <money> until <date>.\nRegards, <surname>, <company>", "Subject: <occasion>\n\nHello everyone, we still need <n> <ware> and somebody who brings <baked>. Please tell <name> by <weekday>. See you at <time>!", "To: <name>\nFrom: <surname>@example.com\n\nI still haven't got the report. This is reminder no. <few>. Send it today or explain to <surname> why not.", "CONGRATULATIONS <name>!!! You have won <money>. Click the link within <n> hours to claim your <gadget>."],
        "notes" => &["- <name1>: call <company> re invoice, by <weekday>\n- budget ok (<money>)\n- <name> on holiday until <date>\n- next mtg <time>", "Meeting <date>. Present: <name>, <name>, <name>. Website late, <name> asks agency. New logo: vote on <weekday>. Printer broken again -> IT.", "<project>\n* <name> does posters\n* <n> chairs missing\n* who has the key??\n* <errand> before <date>", "talked to <surname> in <city>, wants <n> <ware>, price open, send sample till <date>, <name> checks stock"],
        "review" => &["The <gadget> broke after <n> days and support never answered.", "Lovely staff, and the <dish> was the best in <city>!", "It does what it should. Nothing special for <money>.", "Came <few> days late, but the <ware> are beautiful.", "Never again. Cold <dish>, loud music, <big> minutes of waiting.", "My <relative> uses it daily for <hobby>, five stars.", "The <colour> one is fine, the other is smaller than in the picture.", "I was charged twice for <product>, please check."],
        "row" => &["<name> <big> <city>", "<name> <surname>, <big>, <city>", "<name> (<big>) from <city>", "<city> - <name> - <big>"],
        "csv" => &["name,<column1>,<column2>\n<name>,<n>,<big>\n<name>,<n>,<big>\n<name>,<n>,<big>", "id;city;date\n1;<city>;<date>\n2;<city>;<date>", "product,price,stock\n<thing>,<n>.50,<big>\n<ware>,<n>.99,<n>\n<fruit>,<few>.20,<big>"],
        "log" => &["08:<big> INFO start <file>\n08:<big> WARN disk <big>% full\n09:<n> ERROR cannot open <file>.db\n09:<n> ERROR timeout after <big>s", "[<date>] ERROR <func>: no route to host\n[<date>] INFO retry <few>\n[<date>] ERROR <func>: permission denied", "GET /<column>/<n> 200 <big>ms\nGET /<column>/<n> 404 <n>ms\nPOST /<column> 500 <big>ms"],
        _ => things::list(name).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds and how many templates each has at least.
    const LEAST: [(Everyday, usize); 8] = [
        (Greeting, 12),
        (Writing, 35),
        (Planning, 25),
        (Knowledge, 35),
        (Explaining, 25),
        (Code, 45),
        (Rewriting, 25),
        (Data, 20),
    ];

    /// What stands in brackets in programs and is no slot.
    const NO_SLOTS: [&str; 6] = ["ul", "li", "style", "int", "vector", "module"];

    /// The marks in a text that look like slots.
    fn marks(text: &str) -> impl Iterator<Item = &str> {
        let plain =
            |mark: &&str| !mark.is_empty() && mark.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
        text.split('<').skip(1).filter_map(|behind| behind.split_once('>')).map(|(mark, _)| mark).filter(plain)
    }

    #[test]
    fn every_list_that_is_named_exists() {
        let mut texts = vec!["<opening><closing>"];
        texts.extend(LEAST.iter().flat_map(|(kind, _)| templates(*kind)));
        let mut named = HashSet::new();
        while let Some(text) = texts.pop() {
            for name in marks(text).map(list_name).filter(|name| *name != "n" && !NO_SLOTS.contains(name)) {
                assert!(!list(name).is_empty(), "<{name}> in {text}");
                if named.insert(name) {
                    texts.extend(list(name));
                }
            }
        }
        assert!(NO_SLOTS.iter().all(|name| list(name).is_empty()));
    }

    #[test]
    fn tasks_are_many_filled_and_the_same_for_a_seed() {
        let tasks = everyday(2000, 7);
        assert_eq!(tasks, everyday(2000, 7));
        assert_eq!(tasks[..50], everyday(50, 7));
        assert_ne!(tasks[..50], everyday(50, 8));
        let distinct: HashSet<&str> = tasks.iter().map(|(_, text)| text.as_str()).collect();
        assert!(distinct.len() * 100 >= tasks.len() * 95, "{}", distinct.len());
        for (_, text) in &tasks {
            assert!(!text.trim().is_empty());
            assert!(text.split('<').skip(1).all(|behind| slot(behind).is_none()), "{text}");
        }
    }

    #[test]
    fn every_kind_occurs_and_a_quarter_is_code() {
        let tasks = everyday(2000, 11);
        let count = |kind: Everyday| tasks.iter().filter(|(drawn, _)| *drawn == kind).count();
        for (kind, least) in LEAST {
            assert!(templates(kind).len() >= least, "{kind:?}");
            assert!(count(kind) >= 40, "{kind:?}");
        }
        assert!((400..600).contains(&count(Code)), "{}", count(Code));
    }
}
