//! The four messages of a SCRAM exchange (RFC 5802 section 7): parsing and writing them.
//! It borrows from what it parses and never decides whether a login succeeds.

use crate::fault::Malformed;
use crate::scram;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Channel binding as announced in the GS2 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// `n`: the client does not support it.
    Unsupported,
    /// `y`: the client supports it and believes that we do not.
    NotOffered,
    /// `p`: it binds by `tls-server-end-point` (RFC 5929), the only type that PostgreSQL has.
    EndPoint,
}

impl Binding {
    /// What `c=` holds: the header, and the channel's data where it binds.
    fn input(self, end_point: &[u8]) -> Vec<u8> {
        let data = if self == Self::EndPoint { end_point } else { &[] };
        [self.header().as_bytes(), data].concat()
    }

    /// The GS2 header without an authorization identity.
    #[must_use]
    pub fn header(self) -> &'static str {
        match self {
            Self::Unsupported => "n,,",
            Self::NotOffered => "y,,",
            Self::EndPoint => "p=tls-server-end-point,,",
        }
    }
}

/// client-first-message.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    /// From the GS2 header.
    pub binding: Binding,
    /// The message without that header; a part of AuthMessage.
    pub bare: &'a str,
    /// The client's nonce.
    pub nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Parses `gs2-header n=user,r=nonce[,extensions]`. The user's name is not looked at: PostgreSQL takes the one of
    /// the startup packet.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let text = text(data)?;
        let (binding, rest) = text.split_once(',').ok_or(Malformed::Attribute)?;
        let binding = match binding {
            "n" => Binding::Unsupported,
            "y" => Binding::NotOffered,
            "p=tls-server-end-point" => Binding::EndPoint,
            _ => return Err(Malformed::ChannelBinding),
        };
        let bare = match rest.split_once(',') {
            Some(("", bare)) => bare,
            Some(_) => return Err(Malformed::AuthorizationIdentity),
            None => return Err(Malformed::Attribute),
        };
        let mut attributes = Attributes::new(bare);
        attributes.expect('n')?;
        let nonce = printable(attributes.expect('r')?)?;
        attributes.finish()?;
        Ok(Self { binding, bare, nonce })
    }
}

/// server-first-message.
#[derive(Debug, PartialEq, Eq)]
pub struct ServerFirst<'a> {
    /// The client's nonce and the server's after it.
    pub nonce: &'a str,
    /// The salt, decoded.
    pub salt: Vec<u8>,
    /// Rounds, at least 1.
    pub iterations: u32,
}

impl<'a> ServerFirst<'a> {
    /// Parses `r=nonce,s=salt,i=iterations[,extensions]`; the nonce has to be `client_nonce` with something added.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong.
    pub fn parse(data: &'a [u8], client_nonce: &str) -> Result<Self, Malformed> {
        let mut attributes = Attributes::new(text(data)?);
        let nonce = printable(attributes.expect('r')?)?;
        let added = nonce.strip_prefix(client_nonce).ok_or(Malformed::Nonce)?;
        if added.is_empty() {
            return Err(Malformed::Nonce);
        }
        let salt = STANDARD.decode(attributes.expect('s')?).map_err(|_| Malformed::Base64)?;
        if salt.is_empty() {
            return Err(Malformed::Attribute);
        }
        let iterations = scram::parse_iterations(attributes.expect('i')?).ok_or(Malformed::Iterations)?;
        attributes.finish()?;
        Ok(Self { nonce, salt, iterations })
    }

    /// Writes the message.
    #[must_use]
    pub fn write(&self) -> String {
        format!("r={},s={},i={}", self.nonce, STANDARD.encode(&self.salt), self.iterations)
    }
}

/// client-final-message.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientFinal<'a> {
    /// The message up to the proof; a part of AuthMessage.
    pub without_proof: &'a str,
    /// ClientProof.
    pub proof: [u8; 32],
}

impl<'a> ClientFinal<'a> {
    /// Parses `c=header,r=nonce[,extensions],p=proof`, where header (with the channel's data behind it, if it binds) and
    /// nonce have to be those of the exchange.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong.
    pub fn parse(data: &'a [u8], binding: Binding, end_point: &[u8], nonce: &str) -> Result<Self, Malformed> {
        // The proof comes last and no value holds a comma, so the last `,p=` is where it begins.
        let (without_proof, proof) = text(data)?.rsplit_once(",p=").ok_or(Malformed::Attribute)?;
        let proof = scram::decode_key(proof).ok_or(Malformed::Base64)?;
        let mut attributes = Attributes::new(without_proof);
        let header = STANDARD.decode(attributes.expect('c')?).map_err(|_| Malformed::Base64)?;
        if header != binding.input(end_point) {
            return Err(Malformed::ChannelBinding);
        }
        if attributes.expect('r')? != nonce {
            return Err(Malformed::Nonce);
        }
        attributes.finish()?;
        Ok(Self { without_proof, proof })
    }

    /// The message up to the proof.
    #[must_use]
    pub fn write_without_proof(binding: Binding, end_point: &[u8], nonce: &str) -> String {
        format!("c={},r={nonce}", STANDARD.encode(binding.input(end_point)))
    }

    /// Adds the proof to it.
    #[must_use]
    pub fn write(without_proof: &str, proof: &[u8; 32]) -> String {
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }
}

/// server-final-message.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerFinal {
    /// `v=`: ServerSignature.
    Signature([u8; 32]),
    /// `e=`: the server refuses.
    Refusal,
}

impl ServerFinal {
    /// Parses `v=signature[,extensions]` or `e=error[,extensions]`.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let text = text(data)?;
        let mut attributes = Attributes::new(text);
        if text.starts_with("e=") {
            return Ok(Self::Refusal);
        }
        let signature = scram::decode_key(attributes.expect('v')?).ok_or(Malformed::Base64)?;
        attributes.finish()?;
        Ok(Self::Signature(signature))
    }

    /// Writes `v=signature`.
    #[must_use]
    pub fn write_signature(signature: &[u8; 32]) -> String {
        format!("v={}", STANDARD.encode(signature))
    }
}

/// AuthMessage (RFC 5802 section 3): what both sides sign.
#[must_use]
pub fn auth_message(client_first_bare: &str, server_first: &str, client_final_without_proof: &str) -> String {
    format!("{client_first_bare},{server_first},{client_final_without_proof}")
}

/// Attributes `letter=value` between commas, in the order the grammar gives them.
struct Attributes<'a>(Option<&'a str>);

impl<'a> Attributes<'a> {
    fn new(text: &'a str) -> Self {
        Self(Some(text))
    }

    /// The next attribute's value; it has to be this attribute.
    fn expect(&mut self, letter: char) -> Result<&'a str, Malformed> {
        match self.next()? {
            Some((found, value)) if found == letter => Ok(value),
            Some(('m', _)) => Err(Malformed::Extension),
            _ => Err(Malformed::Attribute),
        }
    }

    /// Only optional extensions may follow; what we do not know of them is ignored (RFC 5802 section 5.1).
    fn finish(mut self) -> Result<(), Malformed> {
        while let Some((letter, _)) = self.next()? {
            if letter == 'm' {
                return Err(Malformed::Extension);
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(char, &'a str)>, Malformed> {
        let Some(text) = self.0 else { return Ok(None) };
        let (attribute, rest) = match text.split_once(',') {
            Some((attribute, rest)) => (attribute, Some(rest)),
            None => (text, None),
        };
        self.0 = rest;
        let (name, value) = attribute.split_once('=').ok_or(Malformed::Attribute)?;
        let mut letters = name.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) if letter.is_ascii_alphabetic() => Ok(Some((letter, value))),
            _ => Err(Malformed::Attribute),
        }
    }
}

fn text(data: &[u8]) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(data).map_err(|_| Malformed::Text)?;
    if text.contains('\0') { Err(Malformed::Text) } else { Ok(text) }
}

/// A nonce: one or more printable ASCII characters; commas cannot be there any more.
fn printable(nonce: &str) -> Result<&str, Malformed> {
    let fits = !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(nonce) } else { Err(Malformed::Nonce) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn client_first_as_the_rfc_and_libpq_write_it() {
        let first = ClientFirst::parse(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        assert_eq!(first.nonce, "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(first.bare, "n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!(ClientFirst::parse(b"y,,n=,r=x,a=1").unwrap().binding, Binding::NotOffered);
    }

    #[test]
    fn client_first_refusals() {
        let cases: [(&[u8], Malformed); 14] = [
            (b"", Malformed::Attribute),
            (b"n", Malformed::Attribute),
            (b"n,", Malformed::Attribute),
            (b"n,,", Malformed::Attribute),
            (b"p=tls-unique,,n=,r=x", Malformed::ChannelBinding),
            (b"n,a=admin,n=,r=x", Malformed::AuthorizationIdentity),
            (b"n,,r=x,n=", Malformed::Attribute),
            (b"n,,m=1,n=,r=x", Malformed::Extension),
            (b"n,,n=,r=x,m=1", Malformed::Extension),
            (b"n,,n=,r=", Malformed::Nonce),
            (b"n,,n=,r=a b", Malformed::Nonce),
            (b"n,,n=,r=x,", Malformed::Attribute),
            (b"n,,n=\xff,r=x", Malformed::Text),
            (b"n,,n=\0,r=x", Malformed::Text),
        ];
        for (data, malformed) in cases {
            assert_eq!(ClientFirst::parse(data), Err(malformed), "{}", String::from_utf8_lossy(data));
        }
    }

    #[test]
    fn server_first_round_trip_and_refusals() {
        let written = ServerFirst { nonce: "abc", salt: vec![1, 2, 3], iterations: 4096 };
        let text = written.write();
        assert_eq!(text, "r=abc,s=AQID,i=4096");
        assert_eq!(ServerFirst::parse(text.as_bytes(), "ab").unwrap(), written);
        let cases: [(&[u8], Malformed); 9] = [
            (b"r=ab,s=AQID,i=1", Malformed::Nonce),
            (b"r=xbc,s=AQID,i=1", Malformed::Nonce),
            (b"m=1,r=abc,s=AQID,i=1", Malformed::Extension),
            (b"s=AQID,r=abc,i=1", Malformed::Attribute),
            (b"r=abc,s=AQI,i=1", Malformed::Base64),
            (b"r=abc,s=,i=1", Malformed::Attribute),
            (b"r=abc,s=AQID,i=0", Malformed::Iterations),
            (b"r=abc,s=AQID,i=99999999999", Malformed::Iterations),
            (b"r=abc,s=AQID", Malformed::Attribute),
        ];
        for (data, malformed) in cases {
            assert_eq!(ServerFirst::parse(data, "ab"), Err(malformed), "{}", String::from_utf8_lossy(data));
        }
    }

    #[test]
    fn client_final_round_trip_and_refusals() {
        let without_proof = ClientFinal::write_without_proof(Binding::Unsupported, b"ignored", "abc");
        let text = ClientFinal::write(&without_proof, &[9; 32]);
        let parsed = ClientFinal::parse(text.as_bytes(), Binding::Unsupported, b"", "abc").unwrap();
        assert_eq!(parsed, ClientFinal { without_proof: "c=biws,r=abc", proof: [9; 32] });
        let proof = STANDARD.encode([9; 32]);
        let cases = [
            ("c=biws,r=abc".to_owned(), Malformed::Attribute),
            (format!("c=biws,p={proof}"), Malformed::Attribute),
            (format!("r=abc,c=biws,p={proof}"), Malformed::Attribute),
            (format!("c=eSws,r=abc,p={proof}"), Malformed::ChannelBinding),
            (format!("c=!,r=abc,p={proof}"), Malformed::Base64),
            (format!("c=biws,r=abcd,p={proof}"), Malformed::Nonce),
            (format!("c=biws,r=abc,m=1,p={proof}"), Malformed::Extension),
            (format!("c=biws,r=abc,p={proof},x=1"), Malformed::Base64),
            ("c=biws,r=abc,p=AAAA".to_owned(), Malformed::Base64),
            ("c=biws,r=abc,p=".to_owned(), Malformed::Base64),
        ];
        for (text, malformed) in cases {
            let parsed = ClientFinal::parse(text.as_bytes(), Binding::Unsupported, b"", "abc");
            assert_eq!(parsed, Err(malformed), "{text}");
        }
    }

    #[test]
    fn a_bound_exchange_names_its_channel() {
        let first = ClientFirst::parse(b"p=tls-server-end-point,,n=,r=x").unwrap();
        assert_eq!((first.binding, first.bare), (Binding::EndPoint, "n=,r=x"));
        let text = ClientFinal::write(
            &ClientFinal::write_without_proof(Binding::EndPoint, b"hash", "abc"),
            &[9; 32],
        );
        assert!(ClientFinal::parse(text.as_bytes(), Binding::EndPoint, b"hash", "abc").is_ok());
        for other in [&b"hasx"[..], b"", b"hash "] {
            let parsed = ClientFinal::parse(text.as_bytes(), Binding::EndPoint, other, "abc");
            assert_eq!(parsed, Err(Malformed::ChannelBinding));
        }
    }

    #[test]
    fn server_final_is_a_signature_or_a_refusal() {
        let text = ServerFinal::write_signature(&[7; 32]);
        assert_eq!(ServerFinal::parse(text.as_bytes()), Ok(ServerFinal::Signature([7; 32])));
        assert_eq!(ServerFinal::parse(b"e=invalid-proof"), Ok(ServerFinal::Refusal));
        assert_eq!(ServerFinal::parse(b"v=AAAA"), Err(Malformed::Base64));
        assert_eq!(ServerFinal::parse(b"x=1"), Err(Malformed::Attribute));
    }
}
