//! JSON that Stepwell carries but does not look into: inputs, step results, signals.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// One JSON value, kept as the text it came in: byte-identical on every replay.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Payload(Box<RawValue>);

impl Payload {
    /// Encodes a value.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Checks that a text is one JSON value and keeps it.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// The value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// Decodes the value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }

    /// Decodes a value of one of our own types, with the reader that the rest of the engine has: see [`crate::json`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        crate::json::from_str(self.0.get())
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The JSON text, without a copy.
    pub fn into_text(self) -> String {
        Box::<str>::from(self.0).into_string()
    }

    /// How many bytes the JSON text has.
    pub fn size(&self) -> usize {
        self.0.get().len()
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::null()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    // Payloads hold people's data: a log line shows only how much of it there is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.size())
    }
}
