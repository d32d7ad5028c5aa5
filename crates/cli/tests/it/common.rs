//! A folder of its own for each test, the real binary in it, and fakes that answer by rule.

use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply};
use lemon_trace::Trace;
use lemon_trace::export::jsonl::read_jsonl;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before a test is taken to hang.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Two agents, one after the other.
pub const PAIR: &str = "agents:\n  - {id: one, base: solver, role: First, capacity: small}\n  \
                        - {id: two, base: critic, role: Second, capacity: medium, after: [one]}\n";

/// A script that gives every agent the same reply at once.
pub const SCRIPT: &str = "[[reply]]\ntext = \"Scripted.\\nAnswer: 68\"\n";

/// A folder that the binary runs in.
pub struct Folder {
    dir: TempDir,
}

/// What the binary did.
pub struct Ran {
    pub args: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Folder {
    pub fn new() -> Self {
        Folder { dir: tempfile::Builder::new().prefix("lemon-cli-").tempdir().unwrap() }
    }

    /// A folder with the team [`PAIR`] and the script [`SCRIPT`].
    pub fn with_pair() -> Self {
        Folder::new().file("pair.yaml", PAIR).file("script.toml", SCRIPT)
    }

    /// A folder whose `lemon.toml` names this endpoint for every level, with more TOML after it.
    pub fn with_endpoint(endpoint: &FakeEndpoint, more: &str) -> Self {
        let level = |name: &str| {
            let url = endpoint.base_url();
            format!(
                "[capacity.{name}]\nbase_url = \"{url}\"\nmodel = \"fake\"\nprice = {{ input = 10, output = 20 }}\n"
            )
        };
        let levels: String = ["small", "medium", "large"].map(level).concat();
        Folder::with_pair().file("lemon.toml", format!("{levels}[run.retry]\nfirst_wait_s = 0.01\n{more}"))
    }

    pub fn file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.path(name);
        path.parent().into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        std::fs::write(path, text).unwrap();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The binary, in this folder, in an environment with nothing of ours in it: nor does it look for servers and
    /// checkpoints that happen to be on this machine.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lemon"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.args(args).current_dir(self.dir.path()).env_clear().env("PATH", path).stdin(Stdio::null());
        command.env("LEMON_LOCAL_PORTS", "").env("HF_HOME", self.path("hf")).env("OLLAMA_MODELS", self.path("ollama"));
        command.env("HOME", self.path("home"));
        command
    }

    #[track_caller]
    pub fn lemon(&self, args: &[&str]) -> Ran {
        self.lemon_with(&[], args)
    }

    #[track_caller]
    pub fn lemon_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Ran {
        finish(args, spawn(self.command(args).envs(variables.iter().copied())))
    }

    /// Starts the binary with its output piped.
    pub fn start(&self, args: &[&str]) -> Child {
        spawn(&mut self.command(args))
    }

    /// The whole exchange: command, exit code, output; without what differs from run to run.
    #[track_caller]
    pub fn exchange(&self, args: &[&str]) -> String {
        self.tidy(&self.lemon(args).exchange())
    }

    /// Replaces what differs from run to run.
    pub fn tidy(&self, text: &str) -> String {
        text.replace(&*self.dir.path().to_string_lossy(), "[folder]")
    }

    /// `lemon trace list --json`, newest first.
    #[track_caller]
    pub fn runs(&self) -> Vec<Value> {
        match self.lemon(&["trace", "list", "--limit", "1000", "--json"]).ok().json() {
            Value::Array(runs) => runs,
            other => panic!("not a list: {other}"),
        }
    }

    /// Everything on record about a run.
    #[track_caller]
    pub fn trace(&self, run: &str) -> Trace {
        read_jsonl(&self.lemon(&["trace", "export", run, "--format", "jsonl"]).ok().stdout).unwrap()
    }

    /// The bytes of every file here, however deep.
    pub fn all_bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(self.dir.path(), &mut files);
        files
    }
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push((path.clone(), std::fs::read(path).unwrap())),
        }
    }
}

pub fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the binary to end, but not for ever.
#[track_caller]
pub fn finish(args: &[&str], process: Child) -> Ran {
    let id = process.id().to_string();
    let (ended, end) = channel();
    let thread = std::thread::spawn(move || ended.send(process.wait_with_output().unwrap()));
    let Ok(output) = end.recv_timeout(PATIENCE) else {
        send_signal("KILL", &id);
        panic!("lemon {} hangs", args.join(" "));
    };
    thread.join().unwrap().unwrap();
    Ran::new(args, output)
}

impl Ran {
    fn new(args: &[&str], output: Output) -> Self {
        Ran {
            args: args.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub fn code(self, expected: i32) -> Self {
        let Ran { args, stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(expected), "lemon {args}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        self
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// One JSON value a line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// That the error says this, and stdout nothing; with `--json` and exit code 2 the same error as JSON.
    #[track_caller]
    pub fn complains(&self, words: &[&str]) {
        if self.code == Some(2) && self.args.split(' ').any(|word| word == "--json") {
            let said = self.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(!said.is_empty() && self.stderr.contains(said.lines().next().unwrap()), "{said}\n{}", self.stderr);
        } else {
            assert_eq!(self.stdout, "", "{}", self.stderr);
        }
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        words.iter().for_each(|word| assert!(self.stderr.contains(word), "no {word:?} in {}", self.stderr));
    }

    pub fn exchange(&self) -> String {
        let Ran { args, code, stdout, stderr } = self;
        let code = code.map_or("none".to_owned(), |code| code.to_string());
        let part = |name: &str, text: &str| if text.is_empty() { String::new() } else { format!("--- {name}\n{text}") };
        format!("$ lemon {args}\nexit code {code}\n{}{}", part("stdout", stdout), part("stderr", stderr))
    }
}

/// Snapshots without run ids, times and ports.
pub fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.add_filter(r"\b([rbe])-[a-z2-9]{8}\b", "$1-[id]");
    settings.add_filter(r"127\.0\.0\.1:\d+", "127.0.0.1:[port]");
    // Whether two runs took equally long is a matter of chance.
    settings.add_filter(r"(?m)^ +seconds .*\n", "");
    settings.add_filter(r" +(\d+\.\d+ s|\d+ ms)\b", " [time]");
    settings.add_filter(r"\(\d+\.\d+ s\)", "([time])");
    settings.add_filter(r#""(seconds|wall_s)": [0-9.e-]+"#, r#""$1": "[time]""#);
    settings.add_filter(r" \(os error \d+\)", "");
    settings.add_filter(r"busy time \d+ %", "busy time [share]");
    settings.add_filter(r"parallel speed-up [0-9.]+×", "parallel speed-up [factor]");
    settings
}

/// Holds a text against the snapshot of this name.
#[macro_export]
macro_rules! snapshot {
    ($name:literal, $text:expr) => {
        $crate::common::settings().bind(|| insta::assert_snapshot!($name, $text))
    };
}

/// An endpoint that answers by [`reply_of`].
pub fn endpoint() -> FakeEndpoint {
    FakeEndpoint::start(Behaviour::function(|request| FakeReply::Text(reply_of(request)))).unwrap()
}

/// A reply that depends on every word of the conversation: an agent that reads something else gets another reply.
pub fn reply_of(request: &ChatRequest) -> String {
    let mut hasher = DefaultHasher::new();
    request.text().hash(&mut hasher);
    format!("I have read it.\nAnswer: {}", hasher.finish() % 1_000_000)
}

/// The role of the agent that asks; empty for the orchestrator.
pub fn role_in(system: &str) -> &str {
    system.split_once("You are: ").and_then(|(_, rest)| rest.split_once(".\nYour duty:")).map_or("", |(role, _)| role)
}

/// How often each role asked about a task.
pub fn calls_of(endpoint: &FakeEndpoint, role: &str, task: &str) -> usize {
    let text = |body: &Value, at: usize| body["messages"][at]["content"].as_str().unwrap_or_default().to_owned();
    let asks = |body: &Value| role_in(&text(body, 0)) == role && text(body, 1).contains(task);
    endpoint.requests().iter().filter(|request| asks(&request.body)).count()
}

/// Waits for something that comes about elsewhere.
#[track_caller]
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal by its name.
#[track_caller]
pub fn signal(process: &Child, name: &str) {
    assert!(send_signal(name, &process.id().to_string()), "kill -{name}");
}

pub fn send_signal(name: &str, process: &str) -> bool {
    // The shell's own `kill`: not every system has the program.
    Command::new("sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, process])
        .status()
        .is_ok_and(|status| status.success())
}

/// The same numbers every time.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
