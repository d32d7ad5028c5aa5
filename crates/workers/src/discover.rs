//! Model servers that run on this machine already.

use crate::Tell;
use crate::error::WorkersError;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, Instant};

/// The variable that names the ports to look at, separated by commas; empty: none.
const VARIABLE: &str = "LEMON_LOCAL_PORTS";
/// How long one may take. On loopback a server that is there answers in a few milliseconds.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a server that is there may load its model.
const LOADING_PATIENCE: Duration = Duration::from_secs(120);
/// How long until it is asked again.
const LOADING_PAUSE: Duration = Duration::from_millis(200);
/// The longest list of models that is read.
const MOST_BYTES: usize = 1 << 20;

/// A program that serves models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    Ollama,
    /// vLLM.
    Vllm,
    /// The server of llama.cpp.
    LlamaCpp,
    LmStudio,
    /// One that speaks the protocol and does not say what it is.
    Other,
}

/// A server that runs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The program.
    pub kind: ServerKind,
    /// As a capacity's `base_url`.
    pub base_url: String,
    /// What it serves, in its own order; never empty.
    pub models: Vec<String>,
}

/// A model for each capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerModels {
    /// The smallest.
    pub small: String,
    /// The one in the middle.
    pub medium: String,
    /// The largest.
    pub large: String,
}

/// The ports that the programs use by themselves, or those that the user names.
///
/// # Errors
/// What the user says is no list of ports.
pub fn ports() -> Result<Vec<u16>, WorkersError> {
    let Ok(said) = std::env::var(VARIABLE) else { return Ok(ServerKind::KNOWN.map(ServerKind::port).to_vec()) };
    let port = |text: &str| {
        let wrong = |_| {
            let fact = format!("{VARIABLE} must be a list of ports, got `{said}`");
            WorkersError::new(fact).hint("for instance 11434,8000; empty: do not look for servers")
        };
        text.trim().parse().map_err(wrong)
    };
    said.split(',').filter(|_| !said.trim().is_empty()).map(port).collect()
}

/// Asks each port on loopback, all at once, which models are served there. A program that does not answer in time, or not as a
/// model server does, is left out.
///
/// # Errors
/// No HTTP client can be made.
pub async fn running_servers(ports: &[u16], tell: Tell) -> Result<Vec<Server>, WorkersError> {
    servers_within(PATIENCE, ports, tell).await
}

async fn servers_within(patience: Duration, ports: &[u16], tell: Tell) -> Result<Vec<Server>, WorkersError> {
    if ports.is_empty() {
        return Ok(Vec::new());
    }
    let client = client()
        .map_err(|error| WorkersError::new(format!("servers on this machine cannot be looked for: {error}")))?;
    let asked = ports.iter().map(|port| wait_for(&client, *port, patience, tell));
    Ok(futures::future::join_all(asked).await.into_iter().flatten().collect())
}

/// The server on this port, once it has loaded its model. `None`: there is none, or it loads for too long.
async fn wait_for(client: &Client, port: u16, patience: Duration, tell: Tell) -> Option<Server> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        // One that does not answer in time is not there.
        match tokio::time::timeout(patience, ask(client, port)).await.ok()?? {
            Asked::Ready(found) => return Some(found),
            Asked::Loading if begun.elapsed() > LOADING_PATIENCE => return None,
            Asked::Loading if !told => {
                tell(&format!("the server on port {port} is loading its model; waiting for it…"));
                told = true;
            }
            Asked::Loading => {}
        }
        tokio::time::sleep(LOADING_PAUSE).await;
    }
}

/// What a server says when it is asked for its models.
enum Asked {
    Ready(Server),
    /// It is there and answers 503, which servers do while they load a model.
    Loading,
}

/// A client that connects to this machine only, over plain HTTP: no proxy, no redirect, and no certificates, which a bare
/// machine would not have.
fn client() -> reqwest::Result<Client> {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().redirect(Policy::none()).tls_certs_only([]).build()
}

/// What is on this port. `None`: nothing that serves models; whatever else it sends is no list of them.
async fn ask(client: &Client, port: u16) -> Option<Asked> {
    let base_url = format!("http://127.0.0.1:{port}/v1");
    let mut reply = client.get(format!("{base_url}/models")).send().await.ok()?;
    let is_loading = reply.status() == StatusCode::SERVICE_UNAVAILABLE;
    if !is_loading && !reply.status().is_success() {
        return None;
    }
    let mut body = Vec::new();
    while let Some(piece) = reply.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > MOST_BYTES {
            return None;
        }
    }
    if is_loading {
        // Any program may answer 503; one that serves models says what it does.
        return String::from_utf8_lossy(&body).to_lowercase().contains("loading").then_some(Asked::Loading);
    }
    let list: List = serde_json::from_slice(&body).ok()?;
    let kind = list.data.iter().find_map(|model| ServerKind::of_owner(model.owned_by.as_deref()?));
    // A name is sent back and shown on screens.
    let sound = |name: &String| !name.is_empty() && name.len() <= 200 && !name.chars().any(char::is_control);
    let models: Vec<String> = list.data.into_iter().map(|model| model.id).filter(sound).collect();
    let kind = kind.unwrap_or(ServerKind::of_port(port));
    (!models.is_empty()).then_some(Asked::Ready(Server { kind, base_url, models }))
}

#[derive(Deserialize)]
struct List {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    owned_by: Option<String>,
}

impl ServerKind {
    const KNOWN: [ServerKind; 4] = [ServerKind::Ollama, ServerKind::Vllm, ServerKind::LlamaCpp, ServerKind::LmStudio];

    /// The port it uses by default.
    fn port(self) -> u16 {
        match self {
            ServerKind::Ollama => 11434,
            ServerKind::Vllm => 8000,
            ServerKind::LlamaCpp => 8080,
            ServerKind::LmStudio => 1234,
            ServerKind::Other => 0,
        }
    }

    fn of_port(port: u16) -> Self {
        ServerKind::KNOWN.into_iter().find(|kind| kind.port() == port).unwrap_or(ServerKind::Other)
    }

    /// What each says of its models' owner.
    fn of_owner(owner: &str) -> Option<Self> {
        match owner {
            "library" => Some(ServerKind::Ollama),
            "vllm" => Some(ServerKind::Vllm),
            "llamacpp" => Some(ServerKind::LlamaCpp),
            "organization_owner" => Some(ServerKind::LmStudio),
            _ => None,
        }
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerKind::Ollama => "Ollama",
            ServerKind::Vllm => "vLLM",
            ServerKind::LlamaCpp => "llama.cpp",
            ServerKind::LmStudio => "LM Studio",
            ServerKind::Other => "a model server",
        })
    }
}

impl Server {
    /// Which of its models serve which capacity: the least, the middle and the largest by the sizes in their names. Models
    /// whose names state no size are used only if none states one; those that make embeddings never.
    pub fn levels(&self) -> Option<ServerModels> {
        let chats = self.models.iter().filter(|name| !makes_embeddings(name));
        let mut sized: Vec<(f64, &String)> = chats.clone().filter_map(|name| Some((parameters(name)?, name))).collect();
        sized.sort_by(|a, b| a.0.total_cmp(&b.0));
        let models: Vec<&String> = match sized.is_empty() {
            false => sized.into_iter().map(|(_, name)| name).collect(),
            true => chats.take(1).collect(),
        };
        let (small, large) = (models.first()?, models.last()?);
        let medium = models.get((models.len() - 1) / 2)?;
        Some(ServerModels { small: (*small).clone(), medium: (*medium).clone(), large: (*large).clone() })
    }
}

/// Whether a model of this name makes vectors, and no replies.
pub fn makes_embeddings(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let families = ["bge", "gte", "e5", "minilm", "paraphrase"];
    let words = || name.split(|letter: char| !letter.is_ascii_alphanumeric());
    name.contains("embed") || name.contains("rerank") || words().any(|word| families.contains(&word))
}

/// How many parameters a model has by its name: `qwen2.5:7b`, `Qwen3-0.6B`, `mixtral:8x7b`. The largest such figure, since
/// others tell of the active part or of the context.
fn parameters(name: &str) -> Option<f64> {
    // A point may belong to the figure, or come before a file's ending.
    let words = name.split(|letter: char| !(letter.is_alphanumeric() || letter == '.'));
    let beginnings = |word: &'_ str| word.match_indices('.').map(|(at, _)| at).chain([word.len()]).collect::<Vec<_>>();
    let figures = words.flat_map(|word| beginnings(word).into_iter().filter_map(|end| figure(word.get(..end)?)));
    figures.max_by(f64::total_cmp)
}

/// `7b`, `0.5B`, `270m`, `8x7b`.
fn figure(word: &str) -> Option<f64> {
    let unit = match word.chars().next_back()?.to_ascii_lowercase() {
        'm' => 1e6,
        'b' => 1e9,
        't' => 1e12,
        _ => return None,
    };
    // `parse` alone would take `1e3` and `inf` too.
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        true => text.parse::<f64>().ok().filter(|number| *number > 0.0),
        false => None,
    };
    let count = word.get(..word.len() - 1)?; // The unit is one byte long.
    let product = match count.split_once(['x', 'X']) {
        Some((experts, each)) => number(experts)? * number(each)?,
        None => number(count)?,
    };
    Some(product * unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_fakes::{Behaviour, FakeEndpoint};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn sizes_in_names() {
        let check = |name: &str, expected: Option<f64>| assert_eq!(parameters(name), expected, "{name}");
        check("qwen2.5:7b", Some(7e9));
        check("Qwen/Qwen2.5-0.5B-Instruct", Some(0.5e9));
        check("llama3.2:1b-instruct-q4_K_M", Some(1e9));
        check("Meta-Llama-3.1-8B-Instruct.Q4_K_M.gguf", Some(8e9));
        check("/models/qwen-0.5b.Q4.gguf", Some(0.5e9));
        check("mixtral:8x7b", Some(56e9));
        check("gemma3:270m", Some(270e6));
        check("qwen3:30b-a3b", Some(30e9));
        check("Qwen2.5-7B-Instruct-1M", Some(7e9));
        check("kimi-k2:1t", Some(1e12));
        for unknown in
            ["", "mistral", "llama3.2", "phi-3-mini-4k", "b", "m.b", "1e3b", "infb", "0b", "8xb", "4bit", "\u{fc}7b"]
        {
            check(unknown, None);
        }
        // Whatever a server calls its models.
        let odd = "7b.8x..7B:x\u{fc}0.5b..m-9999999999999999999999b";
        for (from, _) in odd.char_indices() {
            for (to, _) in odd.char_indices().filter(|(to, _)| *to >= from) {
                assert!(parameters(&odd[from..to]).is_none_or(|size| size > 0.0 && size.is_finite()));
            }
        }
    }

    #[test]
    fn models_for_levels() {
        let check = |models: &[&str], expected: Option<[&str; 3]>| {
            let models = models.iter().map(|name| (*name).to_owned()).collect();
            let found = Server { kind: ServerKind::Other, base_url: String::new(), models };
            let levels = found.levels().map(|levels| [levels.small, levels.medium, levels.large]);
            assert_eq!(levels, expected.map(|names| names.map(str::to_owned)), "{:?}", found.models);
        };
        check(&["only"], Some(["only"; 3]));
        check(&["a:7b"], Some(["a:7b"; 3]));
        check(&["a:7b", "b:1b"], Some(["b:1b", "b:1b", "a:7b"]));
        check(&["a:7b", "b:1b", "c:3b"], Some(["b:1b", "c:3b", "a:7b"]));
        check(&["mistral", "a:7b", "b:1b", "c:3b", "d:70b"], Some(["b:1b", "c:3b", "d:70b"]));
        check(&["first", "second"], Some(["first"; 3]));
        check(&["nomic-embed-text", "all-minilm:33m", "bge-m3", "a:7b"], Some(["a:7b"; 3]));
        check(&["nomic-embed-text", "Qwen3-Reranker-8B"], None);
        check(&[], None);
    }

    fn server(owned_by: &str, models: &[&str]) -> FakeEndpoint {
        let models = models.iter().map(|name| (*name).to_owned()).collect();
        FakeEndpoint::start(Behaviour { models, owned_by: owned_by.to_owned(), ..Behaviour::default() }).unwrap()
    }

    /// A port where every request gets this answer, as often as the client takes it.
    fn answers(times: usize, text: String) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        // Ends with the test process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                (0..times).try_for_each(|_| stream.write_all(text.as_bytes())).ok();
            }
        });
        port
    }

    #[tokio::test]
    async fn servers_are_told_apart() {
        let owners = ["library", "vllm", "llamacpp", "organization_owner", "another"];
        let servers = owners.map(|owner| server(owner, &["a:1b", "b:7b"]));
        let ports: Vec<u16> = servers.iter().map(FakeEndpoint::port).collect();
        // However busy this machine is.
        let found = servers_within(Duration::from_secs(60), &ports, |_| {}).await.unwrap();
        let kinds: Vec<ServerKind> = found.iter().map(|found| found.kind).collect();
        assert_eq!(
            kinds,
            [ServerKind::Ollama, ServerKind::Vllm, ServerKind::LlamaCpp, ServerKind::LmStudio, ServerKind::Other]
        );
        assert_eq!(found[0].base_url, servers[0].base_url());
        assert_eq!(found[0].models, ["a:1b", "b:7b"]);
        assert_eq!(ServerKind::of_port(11434), ServerKind::Ollama);
    }

    #[tokio::test]
    async fn a_server_that_loads_is_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
        };
        let loading = answer("503 -", r#"{"error": {"code": 503, "message": "Loading model"}}"#);
        let ready = answer("200 OK", r#"{"data": [{"id": "a:1b", "owned_by": "llamacpp"}]}"#);
        std::thread::spawn(move || {
            for (mut stream, text) in listener.incoming().flatten().zip([&loading, &loading, &ready]) {
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                stream.write_all(text.as_bytes()).unwrap();
            }
        });
        let found = servers_within(Duration::from_secs(60), &[port], |_| {}).await.unwrap();
        assert_eq!(found.iter().map(|found| found.models.join(" ")).collect::<Vec<_>>(), ["a:1b"]);
        let other = answers(1, answer("503 -", "down for maintenance"));
        assert_eq!(servers_within(Duration::from_secs(60), &[other], |_| {}).await.unwrap(), []);
    }

    #[tokio::test]
    async fn whatever_else_listens_is_not_found() {
        let good = server("library", &["a:1b"]);
        let locked = FakeEndpoint::start(Behaviour::text("").api_key("secret")).unwrap();
        let (empty, unprintable) = (server("library", &[]), server("library", &["a\u{1b}[2J"]));
        // Accepts connections, by the system's courtesy, and says nothing.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let json = |body: &str| answers(1, format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        let elsewhere = format!("HTTP/1.1 302 -\r\nlocation: {}/models\r\ncontent-length: 0\r\n\r\n", good.base_url());
        let odd = [
            locked.port(),
            empty.port(),
            unprintable.port(),
            silent.local_addr().unwrap().port(),
            closed,
            json("<html>"),
            json("{}"),
            json(r#"{"data": null}"#),
            json(r#"{"data": [{"id": 7}]}"#),
            answers(1, "SSH-2.0-OpenSSH\r\n".into()),
            answers(1, elsewhere),
            answers(3000, format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(1000))),
        ];
        assert_eq!(running_servers(&odd, |_| {}).await.unwrap(), []);
        assert_eq!(running_servers(&[], |_| {}).await.unwrap(), []);
    }
}
