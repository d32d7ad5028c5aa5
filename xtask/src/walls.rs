//! The walls between our crates: which may use which.

use serde_json::Value;

/// What one of our crates may use of ours.
pub struct Wall {
    package: &'static str,
    /// In the code that ships, build scripts included.
    uses: &'static [&'static str],
    /// In tests, besides.
    tests_use: &'static [&'static str],
}

/// Every crate may use it: numbers, which know nothing of the others.
const FOR_ALL: &str = "lemon-num";

/// In the order the data flows.
pub const WALLS: &[Wall] = &[
    Wall { package: "lemon-num", uses: &[], tests_use: &[] },
    Wall { package: "lemon-spec", uses: &[], tests_use: &[] },
    Wall { package: "lemon-trace", uses: &["lemon-spec"], tests_use: &[] },
    Wall { package: "lemon-view", uses: &["lemon-spec", "lemon-trace"], tests_use: &[] },
    Wall { package: "lemon-exec", uses: &["lemon-spec", "lemon-trace"], tests_use: &["lemon-fakes"] },
    Wall { package: "lemon-fakes", uses: &[], tests_use: &[] },
    Wall { package: "lemon-task", uses: &[], tests_use: &[] },
    Wall { package: "lemon-sandbox", uses: &[], tests_use: &[] },
    Wall { package: "lemon-tools", uses: &["lemon-exec", "lemon-sandbox"], tests_use: &["lemon-fakes"] },
    Wall { package: "lemon-world", uses: &["lemon-spec", "lemon-trace", "lemon-exec", "lemon-task"], tests_use: &[] },
    Wall {
        package: "lemon-rollout",
        uses: &["lemon-spec", "lemon-trace", "lemon-exec", "lemon-task", "lemon-sandbox", "lemon-credit"],
        tests_use: &["lemon-world"],
    },
    Wall {
        package: "lemon-critic",
        uses: &["lemon-spec", "lemon-trace", "lemon-exec", "lemon-model", "lemon-policy"],
        tests_use: &[],
    },
    Wall { package: "lemon-credit", uses: &["lemon-spec", "lemon-trace"], tests_use: &[] },
    Wall {
        package: "lemon-eval",
        uses: &[
            "lemon-spec",
            "lemon-trace",
            "lemon-view",
            "lemon-exec",
            "lemon-task",
            "lemon-problems",
            "lemon-sandbox",
            "lemon-rollout",
        ],
        tests_use: &["lemon-world"],
    },
    Wall {
        package: "lemon-baselines",
        uses: &["lemon-spec", "lemon-exec", "lemon-task", "lemon-rollout", "lemon-eval"],
        tests_use: &["lemon-world"],
    },
    Wall {
        package: "lemon-profile",
        uses: &["lemon-spec", "lemon-trace", "lemon-view", "lemon-exec", "lemon-rollout", "lemon-eval", "lemon-credit"],
        tests_use: &["lemon-task", "lemon-world"],
    },
    Wall { package: "lemon-problems", uses: &["lemon-task"], tests_use: &[] },
    Wall { package: "lemon-model", uses: &["lemon-gpu"], tests_use: &["lemon-spec"] },
    Wall { package: "lemon-gpu", uses: &[], tests_use: &[] },
    Wall { package: "lemon-engine", uses: &["lemon-model", "lemon-gpu"], tests_use: &[] },
    Wall {
        package: "lemon-policy",
        uses: &["lemon-spec", "lemon-trace", "lemon-exec", "lemon-task", "lemon-world", "lemon-model"],
        tests_use: &[],
    },
    Wall {
        package: "lemon-sft",
        uses: &[
            "lemon-spec",
            "lemon-trace",
            "lemon-exec",
            "lemon-task",
            "lemon-world",
            "lemon-rollout",
            "lemon-eval",
            "lemon-problems",
            "lemon-model",
            "lemon-policy",
        ],
        tests_use: &["lemon-fakes", "lemon-sandbox"],
    },
    Wall { package: "lemon-tinker", uses: &["lemon-exec", "lemon-model", "lemon-policy"], tests_use: &["lemon-fakes"] },
    Wall {
        package: "lemon-train",
        uses: &[
            "lemon-spec",
            "lemon-trace",
            "lemon-view",
            "lemon-exec",
            "lemon-task",
            "lemon-world",
            "lemon-rollout",
            "lemon-credit",
            "lemon-problems",
            "lemon-model",
            "lemon-policy",
            "lemon-sft",
            "lemon-tinker",
        ],
        tests_use: &[],
    },
    Wall {
        package: "lemon-study",
        uses: &[
            "lemon-spec",
            "lemon-view",
            "lemon-exec",
            "lemon-world",
            "lemon-rollout",
            "lemon-eval",
            "lemon-credit",
            "lemon-model",
            "lemon-policy",
            "lemon-sft",
            "lemon-train",
        ],
        tests_use: &[],
    },
    Wall {
        package: "lemon-workers",
        uses: &[
            "lemon-spec",
            "lemon-trace",
            "lemon-exec",
            "lemon-critic",
            "lemon-task",
            "lemon-sandbox",
            "lemon-world",
            "lemon-eval",
            "lemon-problems",
            "lemon-model",
            "lemon-engine",
            "lemon-policy",
            "lemon-tools",
        ],
        tests_use: &["lemon-fakes"],
    },
    Wall {
        package: "lemon-cluster",
        uses: &["lemon-spec", "lemon-trace", "lemon-exec", "lemon-rollout"],
        tests_use: &["lemon-fakes"],
    },
    Wall {
        package: "lemon",
        uses: &[
            "lemon-spec",
            "lemon-trace",
            "lemon-exec",
            "lemon-task",
            "lemon-sandbox",
            "lemon-world",
            "lemon-rollout",
            "lemon-eval",
            "lemon-baselines",
            "lemon-credit",
            "lemon-profile",
            "lemon-problems",
            "lemon-model",
            "lemon-engine",
            "lemon-policy",
            "lemon-sft",
            "lemon-train",
            "lemon-study",
            "lemon-tools",
            "lemon-view",
            "lemon-workers",
            "lemon-cluster",
        ],
        tests_use: &["lemon-fakes"],
    },
    Wall {
        package: "lemon-server",
        uses: &[
            "lemon-spec",
            "lemon-trace",
            "lemon-view",
            "lemon-exec",
            "lemon-eval",
            "lemon-workers",
            "lemon-cluster",
            "lemon",
        ],
        tests_use: &["lemon-fakes"],
    },
    Wall {
        package: "lemon-fuzzing",
        uses: &["lemon-spec", "lemon-trace", "lemon-exec", "lemon-task", "lemon-model"],
        tests_use: &[],
    },
    Wall {
        package: "lemon-cli",
        uses: &[
            "lemon-spec",
            "lemon-trace",
            "lemon-view",
            "lemon-exec",
            "lemon-critic",
            "lemon-fakes",
            "lemon-task",
            "lemon-sandbox",
            "lemon-world",
            "lemon-rollout",
            "lemon-eval",
            "lemon-credit",
            "lemon-profile",
            "lemon-problems",
            "lemon-model",
            "lemon-engine",
            "lemon-policy",
            "lemon-sft",
            "lemon-train",
            "lemon-study",
            "lemon-tools",
            "lemon-workers",
            "lemon",
            "lemon-server",
            "lemon-cluster",
        ],
        tests_use: &[],
    },
    Wall { package: "xtask", uses: &[], tests_use: &[] },
];

/// Everything in the output of `cargo metadata --no-deps` that the table does not allow.
pub fn faults(metadata: &Value, walls: &[Wall]) -> Vec<String> {
    let packages = || list(&metadata["packages"]);
    let mut faults = Vec::new();
    for package in packages() {
        match walls.iter().find(|wall| wall.package == name(package)) {
            Some(wall) => faults.extend(forbidden(package, wall)),
            None => faults.push(format!("{}: not in the table; add it to xtask/src/walls.rs", name(package))),
        }
    }
    let missing = |wall: &&Wall| !packages().any(|package| name(package) == wall.package);
    let stale = walls.iter().filter(missing);
    faults.extend(stale.map(|wall| format!("{}: no such crate; remove it from xtask/src/walls.rs", wall.package)));
    faults
}

fn forbidden(package: &Value, wall: &Wall) -> impl Iterator<Item = String> {
    // Only what is ours comes from a path.
    let ours = list(&package["dependencies"]).filter(|dependency| dependency["path"].is_string());
    ours.filter_map(|dependency| {
        let (used, in_tests) = (name(dependency), dependency["kind"] == "dev");
        let allowed = used == FOR_ALL || wall.uses.contains(&used) || in_tests && wall.tests_use.contains(&used);
        let place = if in_tests { " in tests" } else { "" };
        (!allowed).then(|| format!("{}: may not use {used}{place}", wall.package))
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or("(no name)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &[Wall] = &[
        Wall { package: "low", uses: &[], tests_use: &["helper"] },
        Wall { package: "high", uses: &["low"], tests_use: &[] },
    ];

    /// Checks the package `low` with this dependency, beside a `high` that keeps to the table.
    fn check(name: &str, kind: Value, ours: bool, expected: &[&str]) {
        let path = if ours { json!("/somewhere") } else { Value::Null };
        let packages = json!([
            {"name": "low", "dependencies": [{"name": name, "kind": kind, "path": path}]},
            {"name": "high", "dependencies": [{"name": "low", "kind": null, "path": "/somewhere"}]},
        ]);
        assert_eq!(faults(&json!({"packages": packages}), TABLE), expected, "{name} {kind}");
    }

    #[test]
    fn only_what_the_table_allows_may_be_used() {
        check("serde", Value::Null, false, &[]);
        check("high", Value::Null, false, &[]);
        check("high", Value::Null, true, &["low: may not use high"]);
        check("high", json!("build"), true, &["low: may not use high"]);
        check("high", json!("dev"), true, &["low: may not use high in tests"]);
        check("helper", json!("dev"), true, &[]);
        check("lemon-num", Value::Null, true, &[]);
        check("helper", Value::Null, true, &["low: may not use helper"]);
    }

    #[test]
    fn table_and_workspace_name_the_same_crates() {
        let metadata = json!({"packages": [{"name": "low", "dependencies": []}, {"name": "new", "dependencies": []}]});
        let expected = [
            "new: not in the table; add it to xtask/src/walls.rs",
            "high: no such crate; remove it from xtask/src/walls.rs",
        ];
        assert_eq!(faults(&metadata, TABLE), expected);
    }
}
