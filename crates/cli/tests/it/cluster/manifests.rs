//! The files of `docs/scale`: they are what Kubernetes and Compose read, and their commands are ones that this program takes.

use crate::common::Folder;
use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};

const COMPOSE: &str = include_str!("../../../../../docs/scale/compose.yaml");
const KUBERNETES: &str = include_str!("../../../../../docs/scale/kubernetes.yaml");

/// The documents of a YAML text; every scalar is a text.
fn documents(text: &str) -> Vec<Value> {
    let mut events = Parser::new_from_str(text).map(|event| event.unwrap().0);
    let mut documents = Vec::new();
    while let Some(event) = events.next() {
        if let Event::DocumentStart(..) = event {
            let first = events.next().unwrap();
            documents.push(value(first, &mut events));
        }
    }
    documents
}

fn value<'a>(event: Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Value {
    match event {
        Event::Scalar(text, ..) => Value::String(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut entries = Vec::new();
            loop {
                match events.next().unwrap() {
                    Event::SequenceEnd => return Value::Array(entries),
                    entry => entries.push(value(entry, events)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut fields = Map::new();
            loop {
                match events.next().unwrap() {
                    Event::MappingEnd => return Value::Object(fields),
                    Event::Scalar(key, ..) => {
                        let next = events.next().unwrap();
                        let before = fields.insert(key.to_string(), value(next, events));
                        assert!(before.is_none(), "`{key}` is given twice");
                    }
                    other => panic!("a key is expected, found {other:?}"),
                }
            }
        }
        other => panic!("a value is expected, found {other:?}"),
    }
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// That this program takes a command as it stands there.
#[track_caller]
fn assert_taken(command: &Value) {
    let words = texts(command);
    assert_eq!(words[0], "lemon");
    // Arguments that it does not know are an error even where help is asked for after them.
    Folder::new().lemon(&[&words[1..], &["--help"]].concat()).ok();
    let unknown = [&words[1..], &["--none", "--help"]].concat();
    Folder::new().lemon(&unknown).code(2);
}

#[test]
fn compose_has_a_server_and_workers() {
    let [compose] = &documents(COMPOSE)[..] else { panic!("one document") };
    assert_eq!(keys(compose), ["services", "volumes"]);
    assert_eq!(keys(&compose["services"]), ["nats", "worker"]);
    let allowed =
        ["image", "command", "ports", "volumes", "restart", "environment", "depends_on", "stop_grace_period", "deploy"];
    for service in compose["services"].as_object().unwrap().values() {
        assert!(keys(service).iter().all(|key| allowed.contains(key)), "{service}");
        assert!(service["image"].is_string() && service["command"].is_array());
        for volume in texts(&service["volumes"]) {
            assert!(keys(&compose["volumes"]).contains(&volume.split(':').next().unwrap()), "{volume} is declared");
        }
    }
    assert_eq!(texts(&compose["services"]["worker"]["depends_on"]), ["nats"]);
    assert_taken(&compose["services"]["worker"]["command"]);
}

#[test]
fn kubernetes_has_a_server_and_workers_that_fit_together() {
    let documents = documents(KUBERNETES);
    let kinds: Vec<_> = documents.iter().map(|it| (it["apiVersion"].as_str(), it["kind"].as_str())).collect();
    let expected = [("v1", "Service"), ("apps/v1", "StatefulSet"), ("apps/v1", "Deployment")];
    assert_eq!(kinds, expected.map(|(version, kind)| (Some(version), Some(kind))));
    for document in &documents {
        assert_eq!(keys(document), ["apiVersion", "kind", "metadata", "spec"]);
        assert!(document["metadata"]["name"].is_string());
    }
    for workload in &documents[1..] {
        let (spec, template) = (&workload["spec"], &workload["spec"]["template"]);
        assert_eq!(spec["selector"]["matchLabels"], template["metadata"]["labels"]);
        let claims = spec["volumeClaimTemplates"].as_array().map_or(&[][..], Vec::as_slice);
        for container in template["spec"]["containers"].as_array().unwrap() {
            let mounts = container["volumeMounts"].as_array().map_or(&[][..], Vec::as_slice);
            for mount in mounts {
                assert!(claims.iter().any(|claim| claim["metadata"]["name"] == mount["name"]), "{mount} is claimed");
            }
            for variable in container["env"].as_array().unwrap() {
                let from = &variable["valueFrom"]["secretKeyRef"];
                assert!(variable["value"].is_string() || from["name"] == "lemon", "{variable}");
                // The comment at the top makes this secret.
                assert!(from["key"].as_str().is_none_or(|key| KUBERNETES.contains(&format!("--from-literal={key}="))));
            }
        }
    }
    let server = &documents[1]["spec"]["template"];
    assert_eq!(documents[0]["spec"]["selector"], server["metadata"]["labels"], "the service finds the server");
    assert_eq!(documents[1]["spec"]["serviceName"], documents[0]["metadata"]["name"]);
    let ports = &server["spec"]["containers"][0]["ports"];
    assert_eq!(documents[0]["spec"]["ports"][0]["port"], ports[0]["containerPort"]);
    let worker = &documents[2]["spec"]["template"];
    assert_taken(&worker["spec"]["containers"][0]["command"]);
    let scraped = &worker["metadata"]["annotations"]["prometheus.io/port"];
    assert_eq!(*scraped, worker["spec"]["containers"][0]["ports"][0]["containerPort"]);
}
