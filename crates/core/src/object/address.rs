//! Where an object is.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::Error as _};
use stepwell_protocol::Place;

/// Which machine an object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Runs: [`crate::cell`].
    Cell,
    /// Keys and settings of a namespace: [`crate::catalog`].
    Catalog,
    /// Schedules of a namespace: [`crate::schedule`].
    Schedules,
    /// Events of a topic: [`crate::topic`].
    Topic,
    /// The limits of a workflow: [`crate::lane`].
    Lane,
    /// A partition of a queue: [`crate::queue`].
    Queue,
    /// Alert rules of a namespace: [`crate::alert`].
    Alerts,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Cell, Self::Catalog, Self::Schedules, Self::Topic, Self::Lane, Self::Queue, Self::Alerts];

    /// What it is called in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cell => "cell",
            Self::Catalog => "catalog",
            Self::Schedules => "schedules",
            Self::Topic => "topic",
            Self::Lane => "lane",
            Self::Queue => "queue",
            Self::Alerts => "alerts",
        }
    }
}

/// Where an object is. Written `catalog/acme` or `cell/acme/default-1-3`: an object does not always know its name, so
/// each stores its address with its first row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Which machine it has.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Which one of the namespace; empty where there is only one.
    pub name: String,
}

impl Address {
    /// The address of a cell.
    pub fn cell(namespace: &str, place: &Place) -> Self {
        Self { kind: Kind::Cell, namespace: namespace.to_owned(), name: place.to_string() }
    }

    /// The address of a namespace's catalog.
    pub fn catalog(namespace: &str) -> Self {
        Self { kind: Kind::Catalog, namespace: namespace.to_owned(), name: String::new() }
    }

    /// The address of a station of a namespace's schedules.
    pub fn schedules(namespace: &str, shard: &str) -> Self {
        Self { kind: Kind::Schedules, namespace: namespace.to_owned(), name: shard.to_owned() }
    }

    /// The address of a lane: that of a workflow has its name.
    pub fn lane(namespace: &str, lane: &str) -> Self {
        Self { kind: Kind::Lane, namespace: namespace.to_owned(), name: lane.to_owned() }
    }

    /// The address of a partition of a queue. The partition comes first, so that the first partitions of all queues are
    /// neighbours in the register of a namespace: they are the list of its queues.
    pub fn queue(namespace: &str, queue: &str, partition: u32) -> Self {
        Self { kind: Kind::Queue, namespace: namespace.to_owned(), name: format!("{partition}/{queue}") }
    }

    /// The partition and the queue that an address names.
    pub fn partition(&self) -> Option<(u32, &str)> {
        let (partition, queue) = self.name.split_once('/').filter(|_| self.kind == Kind::Queue)?;
        Some((partition.parse().ok()?, queue))
    }

    /// The address of the station of a namespace's alerts.
    pub fn alerts(namespace: &str) -> Self {
        Self { kind: Kind::Alerts, namespace: namespace.to_owned(), name: "0".to_owned() }
    }

    /// The address of a topic.
    pub fn topic(namespace: &str, topic: &str) -> Self {
        Self { kind: Kind::Topic, namespace: namespace.to_owned(), name: topic.to_owned() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.namespace)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, "/{}", self.name) }
    }
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no address of an object")]
pub struct NoAddress(String);

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let mut parts = text.splitn(3, '/');
        let kind = parts.next().and_then(|kind| Kind::ALL.into_iter().find(|known| known.as_str() == kind));
        let namespace = parts.next().filter(|namespace| !namespace.is_empty());
        let name = parts.next();
        match (kind, namespace) {
            (Some(kind), Some(namespace)) if name != Some("") => {
                let (namespace, name) = (namespace.to_owned(), name.unwrap_or_default().to_owned());
                Ok(Self { kind, namespace, name })
            }
            _ => Err(NoAddress(text.to_owned())),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let place = Place { pool: "default".into(), generation: 1, cell: 3 };
        for (address, text) in [
            (Address::cell("acme", &place), "cell/acme/default-1-3"),
            (Address::catalog("acme"), "catalog/acme"),
            (Address::schedules("acme", "0"), "schedules/acme/0"),
            (Address::topic("acme", "order"), "topic/acme/order"),
            (Address::lane("acme", "order"), "lane/acme/order"),
            (Address::queue("acme", "mails", 3), "queue/acme/3/mails"),
            (Address::alerts("acme"), "alerts/acme/0"),
        ] {
            assert_eq!(address.to_string(), text);
            assert_eq!(text.parse(), Ok(address));
        }
        assert_eq!(Address::queue("acme", "mails", 3).partition(), Some((3, "mails")));
        assert_eq!(Address::topic("acme", "3/mails").partition(), None);
        for text in ["", "catalog", "catalog/", "catalog/acme/", "Catalog/acme", "lathe/acme"] {
            assert_eq!(text.parse::<Address>(), Err(NoAddress(text.into())));
        }
    }
}
