//! One question to one name server: over UDP, and over TCP where the answer is too long for that (RFC 1035, 4.2).
//!
//! Owns that an answer is an answer to what was asked. Never decides which server to ask.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use domain::base::iana::Class;
use domain::base::{Message, MessageBuilder, Name, Rtype};

/// What fits into a datagram on most ways (RFC 9715).
const DATAGRAM_BYTES: u16 = 1232;

/// A name server's answer.
pub(crate) type Answer = Message<Vec<u8>>;

/// Queries one server once; waits for the reply until the deadline.
pub(crate) fn ask(
    server: SocketAddr,
    name: &Name<Vec<u8>>,
    kind: Rtype,
    timeout: Duration,
) -> io::Result<Answer> {
    let until = Instant::now() + timeout;
    let question = question(name, kind)?;
    let answer = by_datagram(server, &question, until)?;
    if answer.header().tc() { by_stream(server, &question, until) } else { Ok(answer) }
}

fn question(name: &Name<Vec<u8>>, kind: Rtype) -> io::Result<Answer> {
    let mut id = [0; 2];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(u16::from_ne_bytes(id));
    message.header_mut().set_rd(true);
    let mut question = message.question();
    question.push((name, kind, Class::IN)).map_err(io::Error::other)?;
    let mut additional = question.additional();
    let size = additional.opt(|opt| {
        opt.set_udp_payload_size(DATAGRAM_BYTES);
        Ok(())
    });
    size.map_err(io::Error::other)?;
    Ok(additional.into_message())
}

fn by_datagram(server: SocketAddr, question: &Answer, until: Instant) -> io::Result<Answer> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A port of the kernel's choosing, and answers from this server only.
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.send(question.as_slice())?;
    let mut datagram = [0; 4 * DATAGRAM_BYTES as usize];
    loop {
        socket.set_read_timeout(Some(left(until)?))?;
        let count = socket.recv(&mut datagram)?;
        if let Some(answer) = read(datagram[..count].to_vec(), question) {
            return Ok(answer);
        }
    }
}

fn by_stream(server: SocketAddr, question: &Answer, until: Instant) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, left(until)?)?;
    stream.set_write_timeout(Some(left(until)?))?;
    let bytes = question.as_slice();
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat())?;
    stream.set_read_timeout(Some(left(until)?))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut bytes)?;
    read(bytes, question).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The answer, if it is one to this question.
fn read(bytes: Vec<u8>, question: &Answer) -> Option<Answer> {
    let answer = Message::from_octets(bytes).ok()?;
    answer.is_answer(question).then_some(answer)
}

/// The time left; never zero, as a zero timeout means no timeout to a socket.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
