//! Who may use a cluster, what a message may hold, and jobs that no worker makes.

use super::{EVAL, SILENCE, Workers, notice_soon, on_cluster, outcome, with};
use crate::common::{Folder, finish, wait_until};
use async_nats::HeaderMap;
use lemon_fakes::NatsServer;
use nkeys::KeyPair;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// One run, for the way there and back.
const ONE: &[&str] = &["eval", "--set", "gsm8k", "--limit", "1", "--methods", "cot", "-q", "--json", "--out", "out"];

/// That an evaluation by these variables is made on a cluster at this address, and that one without them is refused.
#[track_caller]
fn lets_in(folder: &Folder, address: &str, variables: &[(&str, &str)]) {
    let alone = outcome(folder, folder.lemon(ONE));
    let mut worker = folder.command(&["worker", "--nats", address, "-q"]);
    let mut worker =
        worker.envs(variables.iter().copied()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let together = folder.lemon_with(variables, &with(ONE, &["--cluster", address]));
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(outcome(folder, together), alone);
}

/// That one with these variables is refused, with these words and without any secret.
#[track_caller]
fn keeps_out(folder: &Folder, address: &str, variables: &[(&str, &str)], words: &str) {
    let refused = folder.lemon_with(variables, &["cluster", "status", "--nats", address]).code(2);
    refused.complains(&["NATS at ", "cannot be used: ", words]);
    assert!(variables.iter().all(|(_, secret)| !refused.stderr.contains(secret)), "{}", refused.stderr);
}

#[test]
fn users_and_tokens_let_a_client_in() {
    let users = "authorization { users = [{user: lemon, password: \"secret-word\"}] }";
    let Some(server) = NatsServer::start_with(users) else { return };
    let (folder, address) = (Folder::new(), server.address());
    let user = [("LEMON_NATS_USER", "lemon"), ("LEMON_NATS_PASSWORD", "secret-word")];
    lets_in(&folder, &address, &user);
    keeps_out(&folder, &address, &[], "authorization violation");
    keeps_out(&folder, &address, &[user[0], ("LEMON_NATS_PASSWORD", "wrong-word")], "authorization violation");
    let Some(server) = NatsServer::start_with("authorization { token: \"secret-word\" }") else { return };
    lets_in(&folder, &server.address(), &[("LEMON_NATS_TOKEN", "secret-word")]);
    keeps_out(&folder, &server.address(), &[("LEMON_NATS_TOKEN", "wrong-word")], "authorization violation");
}

#[test]
fn an_nkey_lets_a_client_in() {
    let (known, other) = (KeyPair::new_user(), KeyPair::new_user());
    let users = format!("authorization {{ users = [{{nkey: {}}}] }}", known.public_key());
    let Some(server) = NatsServer::start_with(&users) else { return };
    let (folder, address) = (Folder::new(), server.address());
    lets_in(&folder, &address, &[("LEMON_NATS_NKEY", &known.seed().unwrap())]);
    keeps_out(&folder, &address, &[("LEMON_NATS_NKEY", &other.seed().unwrap())], "authorization violation");
    keeps_out(&folder, &address, &[("LEMON_NATS_NKEY", "no seed at all")], "");
}

/// A token of NATS: claims about `subject`, signed by `issuer`.
fn token(issuer: &KeyPair, subject: &KeyPair, name: &str, nats: &Value) -> String {
    let encode = |bytes: &[u8]| data_encoding::BASE64URL_NOPAD.encode(bytes);
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": name, "nats": nats,
    });
    let head = encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let signed = format!("{head}.{}", encode(claims.to_string().as_bytes()));
    let signature = encode(&issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

#[test]
fn a_file_of_credentials_lets_a_client_in() {
    let (operator, account, system) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let few = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1});
    let mut all = few.clone();
    ["mem_storage", "disk_storage", "streams", "consumer"].iter().for_each(|limit| all[*limit] = json!(-1));
    let of = |subject: &KeyPair, name: &str, limits: &Value| {
        token(&operator, subject, name, &json!({"type": "account", "version": 2, "limits": limits}))
    };
    let server = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n",
        token(&operator, &operator, "operator", &json!({"type": "operator", "version": 2})),
        system.public_key(),
        account.public_key(),
        of(&account, "account", &all),
        system.public_key(),
        of(&system, "system", &few),
    );
    let Some(server) = NatsServer::start_with(&server) else { return };
    let credentials = |signer: &KeyPair| {
        let user = KeyPair::new_user();
        let nats = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}});
        let (jwt, seed) = (token(signer, &user, "user", &nats), user.seed().unwrap());
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    };
    let folder = Folder::new()
        .file("known.creds", credentials(&account))
        .file("other.creds", credentials(&KeyPair::new_account()))
        .file("none.creds", "nothing");
    let address = server.address();
    lets_in(&folder, &address, &[("LEMON_NATS_CREDS", "known.creds")]);
    let refused =
        |file: &str| folder.lemon_with(&[("LEMON_NATS_CREDS", file)], &["cluster", "status", "--nats", &address]);
    refused("other.creds").code(2).complains(&["NATS at ", "authorization violation"]);
    refused("none.creds").code(2).complains(&["NATS at ", "none.creds", "hint: "]);
    refused("missing.creds").code(2).complains(&["NATS at ", "missing.creds", "hint: "]);
}

/// Keys and certificates in this folder: an authority, a server and a client. `false`: there is no `openssl` here.
fn certificates(folder: &Folder) -> bool {
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        command.args(args.split(' ')).current_dir(folder.path(".")).stdin(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !openssl("version") {
        println!("skipped: openssl is not installed");
        return false;
    }
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let signed = "-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE";
    assert!(openssl(&format!("{new} -keyout ca.key -out ca.pem -subj /CN=authority")));
    assert!(openssl(&format!("{new} -keyout other.key -out other.pem -subj /CN=other")));
    assert!(openssl(&format!(
        "{new} {signed} -keyout server.key -out server.pem -subj /CN=server -addext subjectAltName=IP:127.0.0.1"
    )));
    assert!(openssl(&format!(
        "{new} {signed} -keyout client.key -out client.pem -subj /CN=client -addext extendedKeyUsage=clientAuth"
    )));
    true
}

#[test]
fn a_connection_is_encrypted_and_both_sides_are_known() {
    let folder = Folder::new();
    if !certificates(&folder) {
        return;
    }
    let file = |name: &str| folder.path(name).display().to_string();
    let tls = format!(
        "tls {{ cert_file: '{}', key_file: '{}', ca_file: '{}', verify: true }}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    );
    let Some(server) = NatsServer::start_with(&tls) else { return };
    let address = server.address().replace("nats://", "tls://");
    let authority = ("LEMON_NATS_CA", "ca.pem");
    let client = [authority, ("LEMON_NATS_CERT", "client.pem"), ("LEMON_NATS_KEY", "client.key")];
    lets_in(&folder, &address, &client);
    let refused = |variables: &[(&str, &str)]| {
        folder
            .lemon_with(variables, &["cluster", "status", "--nats", &address])
            .code(2)
            .complains(&["NATS at ", "hint: "]);
    };
    // An authority that the system does not know, no certificate of the client, and one of another authority.
    refused(&[]);
    refused(&[authority]);
    refused(&[authority, ("LEMON_NATS_CERT", "other.pem"), ("LEMON_NATS_KEY", "other.key")]);
    refused(&[("LEMON_NATS_CA", "other.pem"), client[1], client[2]]);
    refused(&[("LEMON_NATS_CA", "missing.pem"), client[1], client[2]]);
}

#[test]
fn what_no_message_holds_goes_as_an_object() {
    // Jobs, results and questions are all larger than what is left of this beside headers.
    let Some(server) = NatsServer::start_with("max_payload: 5KB") else { return };
    let folder = Folder::new();
    let alone = outcome(&folder, folder.lemon(EVAL));
    let _workers = Workers::start(&folder, server.address(), 2);
    assert_eq!(outcome(&folder, on_cluster(&folder, &server.address(), EVAL, || {})), alone);
}

/// Sends a job as it stands, and waits for what becomes of it: its dead letter.
#[track_caller]
fn dead_letter(folder: &Folder, address: &str, headers: &[(&str, &str)], body: &'static str) -> Value {
    let status = || folder.lemon(&["cluster", "status", "--nats", address, "--json"]).ok().json();
    let before = status()["dead"].as_u64().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(address).await.unwrap();
        let mut all = HeaderMap::new();
        headers.iter().for_each(|(name, value)| all.insert(*name, *value));
        let jetstream = async_nats::jetstream::new(client);
        jetstream
            .publish_with_headers("lemon.default.jobs.low.unknown", all, body.into())
            .await
            .unwrap()
            .await
            .unwrap();
    });
    wait_until("it is given up", || status()["dead"].as_u64().unwrap() > before);
    status()["letters"].as_array().unwrap().last().unwrap().clone()
}

#[test]
fn a_job_of_another_version_is_refused() {
    let Some(server) = NatsServer::start() else { return };
    let (folder, address) = (Folder::new(), server.address());
    folder.lemon(&["cluster", "status", "--nats", &address]).ok();
    let version = format!("{}/3", env!("CARGO_PKG_VERSION"));
    let send = |version: &str, body: &'static str| {
        let letter = dead_letter(&folder, &address, &[("Lemon-Version", version)], body);
        letter["error"].as_str().unwrap().to_owned()
    };
    let mut worker = folder.start(&["worker", "--nats", &address, "--tries", "1", "-q"]);
    let others = send("0.0.1/1", "{}");
    assert!(others.contains("the job is of version 0.0.1/1, this worker of ") && others.contains(&version), "{others}");
    let unknown = send(&version, r#"{"id": "j", "more": 1}"#);
    assert!(unknown.contains("the job is not understood: unknown field `more`"), "{unknown}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn a_job_that_kills_its_workers_is_given_up() {
    let Some(server) = NatsServer::start() else { return };
    let (folder, address) = (Folder::new(), server.address());
    notice_soon(&folder, &address);
    let behaviour = lemon_fakes::Behaviour::text("Answer: 1").latency_ms(600_000);
    let endpoint = lemon_fakes::FakeEndpoint::start(behaviour).unwrap();
    let folder = crate::budgets::folder(&endpoint);
    let one = ["eval", "--set", "gsm8k", "--limit", "1", "--methods", "vanilla", "--workers", "endpoints", "-q"];
    let args = with(&one, &["--cluster", &address]);
    let process = folder.start(&args);
    let worker = || folder.start(&["worker", "--nats", &address, "--tries", "2", "--slots", "1", "-q"]);
    for call in 1..=2 {
        let mut victim = worker();
        wait_until("it makes the call", || endpoint.calls() == call);
        victim.kill().unwrap();
        victim.wait().unwrap();
        std::thread::sleep(SILENCE / 2);
    }
    let mut last = worker();
    let ran = finish(&args, process).code(1);
    assert!(ran.stderr.contains("given up: gsm8k/test/"), "{}", ran.stderr);
    assert!(ran.stderr.contains("workers that began it were not heard of again"), "{}", ran.stderr);
    assert_eq!(endpoint.calls(), 2, "the third worker does not begin it");
    last.kill().unwrap();
    last.wait().unwrap();
}

#[test]
fn training_goes_before_evaluation() {
    let Some(server) = NatsServer::start() else { return };
    let behaviour = crate::budgets::behaviour().latency_ms(5);
    let endpoint = lemon_fakes::FakeEndpoint::start(behaviour).unwrap();
    let (eval, train) = (crate::budgets::folder(&endpoint), crate::budgets::folder(&endpoint));
    let train = train.file("table.toml", crate::train::TABLE);
    let address = server.address();
    let on = ["--workers", "endpoints", "-q", "--cluster", &address];
    let eval_args = with(&["eval", "--set", "gsm8k", "--limit", "4", "--methods", "vanilla"], &on);
    let evaluating = eval.start(&eval_args);
    let queued = |at: usize| {
        let status = eval.lemon(&["cluster", "status", "--nats", &address, "--json"]).ok().json();
        status["queued"][at].as_u64().unwrap()
    };
    wait_until("evaluation is queued", || queued(1) == 4);
    let train_args = with(&["train", "--recipe", "table.toml"], &on);
    let training = train.start(&train_args);
    wait_until("training is queued", || queued(0) > 0);
    std::thread::sleep(Duration::from_millis(200));
    let waiting = queued(0);
    let mut worker = eval.start(&["worker", "--nats", &address, "--slots", "1", "-q"]);
    finish(&eval_args, evaluating).ok();
    finish(&train_args, training).ok();
    worker.kill().unwrap();
    worker.wait().unwrap();
    // Runs of the training have one question each, which is none of the evaluation's.
    let of_eval = eval.lemon(&["trace", "list", "--limit", "100", "--json"]).ok().json();
    let questions: Vec<String> = of_eval.as_array().unwrap().iter().map(|run| run["question"].to_string()).collect();
    let is_eval = |request: &lemon_fakes::SeenRequest| {
        let text = request.body["messages"][1]["content"].as_str().unwrap_or_default();
        questions.iter().any(|question| text.contains(question.trim_matches('"').split("\\n").next().unwrap()))
    };
    let seen: Vec<bool> = endpoint.requests().iter().map(is_eval).collect();
    let first = seen.iter().position(|is_eval| *is_eval).unwrap();
    assert!(first as u64 >= waiting && waiting > 0, "{waiting} runs of the training waited: {seen:?}");
}
