//! Tells whether two addresses lead to the same server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};

use super::address::RedisAddress;
use super::endpoint::Endpoint;

impl RedisAddress {
    /// Returns true if both addresses lead to the same server, whatever the login, the database and
    /// the TLS settings are. Asks neither the network nor the file system, so two names of one host
    /// or of one socket count as two servers.
    pub fn is_same_server(&self, other: &Self) -> bool {
        match (&self.endpoint, &other.endpoint) {
            (Endpoint::Tcp(host, port), Endpoint::Tcp(other, other_port)) => {
                port == other_port && Host::of(host).is_same(&Host::of(other))
            }
            (Endpoint::Unix(path), Endpoint::Unix(other)) => direct(path) == direct(other),
            // A sentinel knows one master of a name.
            (Endpoint::Master(sentinels), Endpoint::Master(others)) => {
                let is_known = |node: &Self| others.nodes.iter().any(|other| node.is_same_server(other));
                sentinels.master == others.master && sentinels.nodes.iter().any(is_known)
            }
            _ => false,
        }
    }
}

/// A host in a form that is the same for all ways to write it.
#[derive(PartialEq)]
enum Host<'a> {
    Address(IpAddr),
    /// An IPv6 address, and the network interface behind the %.
    Scoped(Ipv6Addr, &'a str),
    Name(&'a str),
}

impl<'a> Host<'a> {
    fn of(host: &'a str) -> Self {
        let (address, interface) = host.split_at(host.find('%').unwrap_or(host.len()));
        match (address.parse::<Ipv6Addr>(), interface) {
            (Ok(address), "") => return Self::Address(address.to_canonical()),
            (Ok(address), interface) => return Self::Scoped(address, interface),
            _ => {}
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        ipv4(name).map_or(Self::Name(name), |address| Self::Address(address.into()))
    }

    /// Returns true if both lead to the same host. A connection to an unspecified address (0.0.0.0
    /// or ::) leads to this machine's loopback address. Two servers of one machine could have the
    /// same port at its two loopback addresses, but they would not be independent.
    fn is_same(&self, other: &Self) -> bool {
        let leads_to = |one: &Self, other: &Self| match (one, other) {
            (Self::Address(one), Self::Address(other)) => one.is_unspecified() && is_own(*other),
            _ => false,
        };
        self == other || leads_to(self, other) || leads_to(other, self)
    }
}

/// Returns true if a connection to an unspecified address may lead to `address`.
fn is_own(address: IpAddr) -> bool {
    address.is_unspecified() || address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

/// Returns the path without its `..`. If the directory before a `..` is a link, the system follows
/// another path, and the user has to write that path.
fn direct(path: &Path) -> PathBuf {
    let mut direct = PathBuf::new();
    for part in path.components() {
        // The path is absolute, and `..` in the root stays there.
        if part == Component::ParentDir {
            direct.pop();
        } else {
            direct.push(part);
        }
    }
    direct
}

/// Returns the IPv4 address that a host name spells, in any form that a resolver accepts: one to
/// four numbers, each decimal, octal or hexadecimal. The last number fills the remaining bytes.
///
/// Source: `inet_aton(3)`.
fn ipv4(name: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u32> = name.split('.').map(number).collect::<Option<_>>()?;
    let (&last, first) = numbers.split_last()?;
    if first.len() > 3 || first.iter().any(|&byte| byte > 255) {
        return None;
    }
    let room = 32 - 8 * first.len();
    if room < 32 && last >> room != 0 {
        return None;
    }
    let bits = first.iter().enumerate().fold(last, |bits, (i, byte)| bits | byte << (24 - 8 * i));
    Some(Ipv4Addr::from(bits))
}

fn number(text: &str) -> Option<u32> {
    // `from_str_radix` accepts a sign.
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some("") => Some(0),
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(&text[1..], 8).ok(),
        None => text.parse().ok(),
    }
}
