//! Parts of requests that are read by hand, as the description of the API words them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What the answer must look like.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FormatWish {
    /// Any text.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON that obeys a schema.
    JsonSchema {
        /// The schema, with its name.
        json_schema: SchemaWish,
    },
}

/// A schema, with its name.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SchemaWish {
    /// Its name.
    pub name: Option<String>,
    /// A JSON Schema.
    #[schema(value_type = AnySchema)]
    pub schema: Value,
}

/// A JSON Schema for objects.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AnySchema {
    /// `object`.
    #[schema(pattern = "^object$")]
    pub r#type: String,
}

/// What the answer of `/v1/responses` must look like.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TextWish {
    /// The format.
    pub format: Option<FormatWish>,
}
