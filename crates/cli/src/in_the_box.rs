//! The model that ships with this program: the one that writes teams.

use lemon_policy::Packed;

/// The orchestrator.
pub const ORCHESTRATOR: Packed = &[
    ("config.json", include_bytes!("../../../models/orchestrator/config.json")),
    ("generation_config.json", include_bytes!("../../../models/orchestrator/generation_config.json")),
    ("model.safetensors", include_bytes!("../../../models/orchestrator/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../../models/orchestrator/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../../models/orchestrator/tokenizer_config.json")),
];
