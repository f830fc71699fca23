//! What common proxies send, and the setting that finds the client behind them.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Request};
use tollgate::key::ClientIp;

/// A chain of proxies, as the server sees it.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// As in the guide.
    pub name: &'static str,
    /// The setting that the guide names.
    pub setting: fn() -> ClientIp,
    /// The other end of the connection.
    pub peer: &'static str,
    /// The header fields. `CLIENT` stands for the client's address, and `FORGED` for what the client has
    /// sent itself and the proxies pass on.
    pub fields: &'static [(&'static str, &'static str)],
}

/// The chains of the guide.
pub const CHAINS: [Chain; 13] = [
    Chain {
        name: "Google Cloud, external application load balancer",
        setting: || ClientIp::x_forwarded_for(2),
        peer: "35.191.10.7",
        fields: &[("x-forwarded-for", "FORGED, CLIENT, 34.120.5.9")],
    },
    Chain {
        name: "AWS, application load balancer",
        setting: || ClientIp::x_forwarded_for(["10.0.0.0/16"]),
        peer: "10.0.3.17",
        fields: &[("x-forwarded-for", "FORGED, CLIENT")],
    },
    Chain {
        name: "AWS, CloudFront in front of the load balancer",
        setting: || ClientIp::x_forwarded_for(2),
        peer: "10.0.3.17",
        fields: &[("x-forwarded-for", "FORGED, CLIENT, 130.176.90.3")],
    },
    Chain {
        name: "Azure, Application Gateway",
        setting: || ClientIp::x_forwarded_for(1),
        peer: "10.1.0.5",
        fields: &[("x-forwarded-for", "FORGED, CLIENT:50123"), ("x-azure-socketip", "CLIENT")],
    },
    Chain {
        name: "Azure, Front Door",
        setting: || ClientIp::x_forwarded_for(1),
        peer: "147.243.8.9",
        fields: &[
            ("x-forwarded-for", "FORGED, CLIENT"),
            ("x-azure-clientip", "CLIENT"),
            ("x-azure-socketip", "CLIENT"),
        ],
    },
    Chain {
        name: "Fly",
        setting: || ClientIp::header("fly-client-ip", 1),
        peer: "172.16.4.226",
        fields: &[("fly-client-ip", "CLIENT"), ("x-forwarded-for", "FORGED, CLIENT, 66.241.125.8")],
    },
    Chain {
        name: "Fastly",
        setting: || ClientIp::x_forwarded_for(1),
        peer: "151.101.2.9",
        fields: &[("x-forwarded-for", "FORGED, CLIENT"), ("fastly-client-ip", "FORGED")],
    },
    Chain {
        name: "Cloudflare alone",
        setting: || ClientIp::header("cf-connecting-ip", ["172.64.0.0/13", "2606:4700::/32"]),
        peer: "172.68.4.9",
        fields: &[("cf-connecting-ip", "CLIENT"), ("x-forwarded-for", "FORGED,CLIENT")],
    },
    Chain {
        name: "Cloudflare in front of nginx",
        setting: || ClientIp::x_forwarded_for(["10.0.0.0/8", "172.64.0.0/13", "2606:4700::/32"]),
        peer: "10.0.0.4",
        fields: &[
            ("x-forwarded-for", "FORGED,CLIENT, 172.68.4.9"),
            ("cf-connecting-ip", "CLIENT"),
            ("x-real-ip", "172.68.4.9"),
        ],
    },
    Chain {
        name: "nginx",
        setting: || ClientIp::x_forwarded_for(["127.0.0.1"]),
        peer: "127.0.0.1",
        fields: &[("x-forwarded-for", "FORGED, CLIENT"), ("x-real-ip", "CLIENT")],
    },
    Chain {
        name: "nginx, by a Unix socket",
        setting: || ClientIp::x_forwarded_for(1),
        peer: "",
        fields: &[("x-forwarded-for", "FORGED, CLIENT"), ("x-real-ip", "CLIENT")],
    },
    Chain {
        name: "Kubernetes, ingress-nginx",
        setting: || ClientIp::x_forwarded_for(["10.244.0.0/16"]),
        peer: "10.244.1.8",
        // It replaces what it gets.
        fields: &[("x-forwarded-for", "CLIENT"), ("x-real-ip", "CLIENT")],
    },
    Chain {
        name: "Kubernetes, ingress-nginx behind a load balancer (`use-forwarded-headers`)",
        setting: || ClientIp::x_forwarded_for(2),
        peer: "10.244.1.8",
        fields: &[("x-forwarded-for", "FORGED, CLIENT, 10.0.3.17"), ("x-real-ip", "10.0.3.17")],
    },
];

impl Chain {
    /// A request of this client, which has sent an address of its own as well.
    pub fn request(&self, client: IpAddr, forged: IpAddr) -> Request<()> {
        let mut request = Request::new(());
        if let Ok(peer) = self.peer.parse::<IpAddr>() {
            request.extensions_mut().insert(SocketAddr::new(peer, 5123));
        }
        for (name, value) in self.fields {
            let value = value.replace("CLIENT", &client.to_string());
            let value =
                HeaderValue::try_from(value.replace("FORGED", &forged.to_string())).unwrap();
            request.headers_mut().append(HeaderName::from_static(name), value);
        }
        request
    }
}
