//! `lemon compare`: what two evaluations found differently.

use crate::common::Folder;
use crate::eval::{list, report};
use crate::snapshot;
use serde_json::{Value, json};

fn id(report: &Value) -> &str {
    report["set_up"]["eval_id"].as_str().unwrap()
}

#[test]
fn the_same_twice() {
    let folder = Folder::new();
    let args = ["--set", "gsm8k", "--methods", "cot,chain"];
    let (a, b) = (report(&folder, &args), report(&folder, &args));
    let ran = folder.lemon(&["compare", id(&a), id(&b), "--json"]).ok();
    assert_eq!(ran.stderr, "");
    let comparison = ran.json();
    assert_eq!(list(&comparison["methods"]).len(), 2);
    for method in list(&comparison["methods"]) {
        assert_eq!((&method["change"], &method["token_change"]), (&json!(0.0), &json!(0.0)), "{method}");
        assert_eq!((&method["gained"]["items"], &method["lost"]["items"]), (&json!(0), &json!(0)));
        assert_eq!((&method["permutation_p"], &method["items"]), (&json!(1.0), &json!(24)));
    }
}

#[test]
fn two_worlds() {
    let folder = Folder::new();
    let args = ["--set", "gsm8k", "--methods", "vanilla,chain"];
    let a = report(&folder, &args);
    let b = report(&folder, &["--world", "teams", "--set", "gsm8k", "--methods", "chain,vanilla,cot", "--limit", "20"]);
    snapshot!("compare", folder.exchange(&["compare", id(&a), id(&b)]));

    // By its id, its folder or its file, and the other way round the other way round.
    let forth = folder.lemon(&["compare", id(&a), id(&b), "--json"]).ok().json();
    let folder_of = |report: &Value| format!(".lemon/evals/{}", id(report));
    let back = folder.lemon(&["compare", &folder_of(&b), &(folder_of(&a) + "/eval.json"), "--json"]).ok().json();
    assert_eq!((&forth["methods_only_b"], &back["methods_only_a"]), (&json!(["cot"]), &json!(["cot"])));
    for (forth, back) in list(&forth["methods"]).iter().zip(list(&back["methods"])) {
        let change = |of: &Value| of["change"].as_f64().unwrap();
        assert!(change(forth) == -change(back) && change(forth) != 0.0, "{forth}");
        assert_eq!((&forth["gained"], &forth["lost"]), (&back["lost"], &back["gained"]));
        let bounds: Vec<f64> = list(&forth["interval"]).iter().map(|bound| bound.as_f64().unwrap()).collect();
        assert!(bounds[0] <= change(forth) && change(forth) <= bounds[1]);
    }
}

#[test]
fn what_cannot_be_compared() {
    let folder = Folder::new().file("text.json", "{\"rows\": 3}");
    let a = report(&folder, &["--set", "gsm8k", "--methods", "cot", "--limit", "2"]);
    let b = report(&folder, &["--set", "svamp", "--methods", "cot", "--limit", "2"]);
    let c = report(&folder, &["--set", "gsm8k", "--methods", "chain:2", "--limit", "2"]);
    let exchange = |other: &str| {
        let ran = folder.lemon(&["compare", id(&a), other]).code(2);
        assert_eq!(ran.stdout, "");
        ran.exchange() + "\n"
    };
    let text = [exchange("e-22222222"), exchange("text.json"), exchange(id(&b)), exchange(id(&c))];
    snapshot!("what_cannot_be_compared", text.concat());
}
