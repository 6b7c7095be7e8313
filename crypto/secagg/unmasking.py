"""The own masks of an attempt, and how the survivors take masks off a sum if other silos drop out. Silos only.

Guarantees: the roster learns either a silo's own mask key or its attempt key, never both, and only from as many shares
as `circle.Circle.shares` says. Every share, key and pair seed is checked against what its dealer signed before anything
was uploaded, so a silo that dealt wrongly is named. A note of another attempt, tensor, roster, survivor list or sender
is refused (Bonawitz et al., CCS 2017; docs/design/sums.md, "Dropouts"). The callers make sure that a silo shares once
in an attempt, signs one survivor list, and calls `make_reveal` only after `threshold` survivors have signed that list
(`SurvivorList.signed_by`). `crypto.secagg.checks` refuses an upload whose masks are not the shared ones.

A pair seed has two owners, who may both drop out, and long-term pair secrets are never shared. Therefore each silo
deposits its attempt's pair seeds, sealed under the attempt key. On a circle (`circle`) a silo shares its secrets among
its neighbours and itself, and has pair seeds with its neighbours alone. Every silo commits (SHA-256 over a label and 32
random bytes or more) to everything that it deals. The two commitments to one pair seed are equal, so they can be
compared. A silo reads its own slice of each note (`dealt.slices`), and whole notes only where a sum cannot be opened
without (`NotesWantedError`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.errors import CryptoError, NotesWantedError, RecoveryRefused, SealError, SignatureRefused
from crypto.hkdf import KEY_BYTES, derive
from crypto.pki.certificates import Credential, Trust
from crypto.secagg.agreement import PairSecrets, Roster, RosterEntry
from crypto.secagg.dealt.attempt_secrets import AttemptSecrets
from crypto.secagg.dealt.boxes import open_under, seal_under
from crypto.secagg.dealt.bundles import (
    PARTS,
    Pieces,
    Published,
    Slice,
    Spot,
    assemble,
    commit_keys,
    commit_note_key,
    to_sign,
    unsigned,
)
from crypto.secagg.dealt.bundles import bound as _bound
from crypto.secagg.dealt.bundles import commit as _commit
from crypto.secagg.dealt.bundles import commit_pair as _commit_pair
from crypto.secagg.dealt.complaints import ShareComplaint
from crypto.secagg.dealt.shamir import combine, split
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.dealt.slices import HASH_BYTES, MAX_SIGNATURE
from crypto.secagg.layout import SHARE_BYTES
from crypto.secagg.masks import Unmasking
from crypto.secagg.packages import GroupKeys
from crypto.secagg.survivors import AttemptRef, SurvivorList
from crypto.secagg.words import NOTHING, WORD_BYTES, Word


@dataclass(frozen=True)
class Recovered:
    """The masks on the survivors' sum, and the silos whose reveals were ignored."""

    unmasking: Unmasking
    ignored: tuple[str, ...]
    """Silos whose reveals were not authentic, for another list or other shares notes, or shown to be wrong; sorted."""


def pair_seed(pair: bytes, attempt: AttemptRef, tensor: str) -> bytes:
    """Derive the 32 bytes of two silos for one tensor of an attempt from their pair secret. Both get the same."""
    return derive(pair, canonical("pair seed", attempt.canonical(), tensor))


def make_bundle(  # noqa: PLR0917  # a protocol step's dataflow
    secrets: AttemptSecrets,
    attempt: AttemptRef,
    me: str,
    roster: Roster,
    pairs: PairSecrets,
    keys: GroupKeys,
    threshold: int,
    credential: Credential,
    entropy: Entropy,
    words: Mapping[str, Word],
) -> bytes:
    """Make the shares note, which shares an attempt's secrets among this silo's neighbours and this silo itself.

    Layout, for k tensors in sorted order and n holders in the roster's order: the head; for each holder its slice; for
    each tensor the n - 1 pair seeds (32 each) sealed. The head: magic (16); the hash of the roster's keys (32); this
    silo's word (89); for each tensor and part the commitment to the secret (32 each); the hash of the sealed pair seeds
    (32); the root of the slices (32); signature with its length (73). A slice: the word last heard of the holder (89);
    the commitment to the key of its sealed shares (32); for each tensor and part the commitment to its share (32 each);
    for each tensor the commitment to the pair seed with it (32 each); its 2k shares (33 each) sealed.
    `words` are this silo's own and those that it has heard, by name.
    Raises `SealError` if the pair secrets are not the roster's or more shares would be needed than there are.
    """
    _require_roster(attempt, roster, pairs, me)
    names, others = roster.circle.holders(me), roster.circle.neighbours(me)
    needed = roster.circle.shares(threshold)
    tensors = sorted(secrets.own)
    note_keys = {name: _shares_key(pairs, me, name, _bound("shares", attempt, me, name)) for name in names}
    dealt: dict[Spot, dict[str, bytes]] = {}
    committed: list[bytes] = []
    for tensor in tensors:
        for part in PARTS:
            secret, spot = (secrets.own if part == "own" else secrets.keys)[tensor], (tensor, part)
            dealt[spot] = dict(zip(names, split(secret, needed, len(names), entropy), strict=True))
            committed.append(_commit(attempt, me, spot, "", secret))
    seeds = {tensor: {name: pair_seed(pairs[name], attempt, tensor) for name in others} for tensor in tensors}
    slices = {}
    for name in names:
        shares = {spot: of[name] for spot, of in dealt.items()}
        bound = _bound("shares", attempt, me, name)
        slices[name] = Slice(
            word=words.get(name, NOTHING),
            note_key=commit_note_key(attempt, me, name, note_keys[name]),
            commitments={spot: _commit(attempt, me, spot, name, share) for spot, share in shares.items()},
            pairs={
                tensor: _commit_pair(attempt, tensor, of[name]) if name in of else bytes(HASH_BYTES)
                for tensor, of in seeds.items()
            },
            sealed=seal_under(note_keys[name], b"".join(shares.values()), bound, entropy),
        ).to_bytes()
    deposits = {}
    for tensor, of in seeds.items():
        bound = _bound("deposit", attempt, me, tensor)
        deposits[tensor] = seal_under(derive(secrets.keys[tensor], bound), b"".join(of.values()), bound, entropy)
    return assemble(
        commit_keys(attempt, keys.ckks, keys.group, keys.check),
        words.get(me, NOTHING),
        committed,
        slices,
        deposits,
        lambda head: credential.sign(to_sign(attempt, me, tensors, needed, head)),
    )


def read_bundle(  # noqa: PLR0917  # a protocol step's dataflow
    blob: bytes,
    owner: str,
    attempt: AttemptRef,
    tensors: Iterable[str],
    me: str,
    roster: Roster,
    pairs: PairSecrets,
    threshold: int,
    trust: Trust,
    about: Collection[str] | None = None,
) -> ShareBundle:
    """Check a member's shares note (this silo's own too) and open the shares in it that are for this silo.

    The note is whole, or cut for the silos of `about` (`slices.Cutting`). What it has for others is commitments. A silo
    that is no holder reads these alone. `roster` must be verified. Raises `RecoveryRefused` without a
    culprit if the note is malformed or its owner did not sign it for this attempt, and with the owner as culprit if the
    owner signed shares or pair seeds that are wrong for this silo. Raises `SealError` if the pair secrets are not the
    roster's, and `CertificateError` if a certificate has expired.
    """
    _require_roster(attempt, roster, pairs, me)
    entry, circle = roster.entry(owner), roster.circle
    holders = circle.holders(owner)
    note = Published.parse(blob, owner, attempt, tensors, holders, about)
    _require_signed(note, entry, circle.shares(threshold), trust)
    slices, ordered = note.slices, {tensor: None for tensor, _ in note.secrets}
    return ShareBundle(
        owner,
        attempt,
        hashlib.sha256(note.head).digest(),
        holders,
        _open_shares(note, me, pairs) if me in slices else {},
        {
            spot: {"": secret, **{name: one.commitments[spot] for name, one in slices.items()}}
            for spot, secret in note.secrets.items()
        },
        {tensor: {name: one.pairs[tensor] for name, one in slices.items() if name != owner} for tensor in ordered},
        note.deposits,
        note.keys,
        {**{name: one.word for name, one in slices.items()}, owner: note.word},
    )


def _open_shares(note: Published, me: str, pairs: PairSecrets) -> dict[Spot, bytes]:
    """Return the shares that are for this silo, and check what the owner says of the seeds that it has with it."""
    attempt, owner = note.attempt, note.owner
    key = _shares_key(pairs, owner, me, _bound("shares", attempt, owner, me))
    if not note.commits_to(me, key):
        msg = f"{owner!r} committed to another key than that of this silo's shares; ask both why"
        raise RecoveryRefused(msg, owner)
    shares = note.opened(me, key)
    committed = {} if owner == me else note.slices[me].pairs
    for tensor, commitment in committed.items():
        if commitment != _commit_pair(attempt, tensor, pair_seed(pairs[owner], attempt, tensor)):
            msg = f"{owner!r} committed to another seed than the one that it shares with this silo; ask both why"
            raise RecoveryRefused(msg, owner)
    return shares


def examine(  # noqa: PLR0917  # a complaint, and what it is about
    complaint: ShareComplaint, blob: bytes, tensors: Iterable[str], roster: Roster, threshold: int, trust: Trust
) -> str:
    """Return who lied, a silo that complains about its shares in this note or the note's owner.

    `roster` must be verified, and the complaint's signature too. Raises `RecoveryRefused` without a culprit if the note
    is malformed, or if its owner did not sign it for the complaint's attempt: then this is not the owner's note.
    """
    entry, holders = roster.entry(complaint.owner), roster.circle.holders(complaint.owner)
    note = Published.parse(blob, complaint.owner, complaint.attempt, tensors, holders)
    _require_signed(note, entry, roster.circle.shares(threshold), trust)
    return complaint.liar(blob, tensors, holders)


def _require_signed(note: Published, entry: RosterEntry, threshold: int, trust: Trust) -> None:
    try:
        entry.verify(trust, note.to_sign(threshold), note.signature)
    except SignatureRefused:
        raise unsigned(note.owner) from None


def require_same_keys(bundles: Mapping[str, ShareBundle], me: str, dealer: str) -> None:
    """Compare the hashes of the roster's keys in the participants' notes, before anything is uploaded.

    Raises `RecoveryRefused` if the dealer names other keys than it dealt to this silo, with the dealer as culprit (this
    silo may lie, too); and without a culprit if the dealer's note is not there, and others name other keys. If only
    others differ from the dealer, it is for them to say so.
    """
    mine, dealt = bundles[me].keys, bundles.get(dealer)
    unlike = any(bundle.keys != mine for bundle in bundles.values()) if dealt is None else dealt.keys != mine
    if unlike:
        msg = "the silos hold different keys of this roster; deal them again in a new attempt"
        raise RecoveryRefused(msg, "" if dealt is None else dealer)


def notes_digest(bundles: Mapping[str, ShareBundle], participants: Iterable[str]) -> str:
    """Return one digest of the participants' shares notes, lowercase hex: whoever holds other notes has another.

    Raises `RecoveryRefused` if a participant's note is missing.
    """
    names = sorted(set(participants))
    if missing := [name for name in names if name not in bundles]:
        msg = f"the shares notes of {', '.join(missing)} are missing; begin a new attempt"
        raise RecoveryRefused(msg)
    named = canonical("shares notes", *(part for name in names for part in (name, bundles[name].digest)))
    return hashlib.sha256(named).hexdigest()


def make_reveal(  # noqa: PLR0917  # a protocol step's dataflow
    bundles: Mapping[str, ShareBundle],
    survivors: SurvivorList,
    participants: Iterable[str],
    me: str,
    keys: GroupKeys,
    credential: Credential,
    entropy: Entropy,
    word: Word,
) -> bytes:
    """Reveal this silo's share of each survivor's own mask key, and of each other participant's attempt key.

    The reveal is sealed to the roster for this list, this sender and these shares notes. It holds one share (33) for
    each participant whose shares this silo holds, in sorted order, this silo's `word` (89) and the signature (DER).
    Raises `RecoveryRefused` if survivors, participants and bundles do not fit each other, or if this silo is no
    survivor.
    """
    held = _held(bundles, survivors, participants)
    if me not in survivors.names:
        msg = "this silo's upload is not in the sum, so it reveals nothing; wait for the next round"
        raise RecoveryRefused(msg)
    shares = [bundle.shares[spot] for bundle in held if (spot := _spot(bundle, survivors)) in bundle.shares]
    context = _reveal_context(survivors, me)
    pieces = [*shares, word.to_bytes()]
    plain = b"".join([*pieces, credential.sign(_reveal_message(context, pieces))])
    return seal_under(derive(keys.group, context), plain, context, entropy)


def read_reveals(  # noqa: PLR0917  # a protocol step's dataflow
    blobs: Mapping[str, bytes],
    bundles: Mapping[str, ShareBundle],
    survivors: SurvivorList,
    participants: Iterable[str],
    roster: Roster,
    keys: GroupKeys,
    threshold: int,
    trust: Trust,
    answerable: Collection[str] = (),
) -> Recovered:
    """Combine the shares that survivors revealed (`blobs`: sender -> note) into the masks that lie on their sum.

    `roster` must be verified. A note that cannot be used is ignored, and the result names its sender; the rest of the
    result does not depend on which notes were ignored. A share that nothing shows to be wrong, because the secret is
    right without it, is not looked at. `answerable` are the senders that signed these very bytes as their notes.
    Raises `NotesWantedError` if some silos have dropped out, or shares of their secrets do not combine, and not all was
    read that concerns them. Raises `RecoveryRefused`:

    - without a culprit, if the arguments do not fit each other;
    - if fewer than `threshold` notes are left; its culprit is the first sender that is answerable for an ignored note;
    - with the dealer as culprit, if the dealer's shares do not combine to the secret that it committed to, or its
      deposit does not hold the seeds that it committed to.
    """
    held = _held(bundles, survivors, participants)
    _require_read(held, survivors)
    revealed: dict[str, dict[str, bytes]] = {}
    ignored, of = [], _by_holder(held)
    for sender, blob in sorted(blobs.items()):
        try:
            shares, _ = _open_reveal(blob, sender, of[sender], survivors, roster=roster, keys=keys, trust=trust)
        except CryptoError:
            ignored.append(sender)
        else:
            revealed[sender] = shares
    if len(revealed) < threshold:
        msg = (
            f"{len(revealed)} of the {threshold} reveals that the sum needs can be used (ignored:"
            f" {', '.join(ignored) or 'none'}); wait for more reveals, or begin a new attempt"
        )
        raise RecoveryRefused(msg, next((name for name in ignored if name in answerable), ""))
    needed = roster.circle.shares(threshold)
    secrets: dict[str, bytes | None] = {}
    for bundle in held:
        given = {holder: revealed[holder][bundle.owner] for holder in bundle.holders if holder in revealed}
        secrets[bundle.owner] = _combine(bundle, survivors, given, needed)
    if unclear := [name for name, secret in secrets.items() if secret is None]:
        raise NotesWantedError(tuple(unclear))
    own: dict[str, bytes] = {}
    dropped: dict[str, dict[str, bytes]] = {}
    for bundle in held:
        secret = secrets[bundle.owner] or b""
        if bundle.owner in survivors.among:
            own[bundle.owner] = secret
        else:
            seeds = _withdraw(bundle, survivors, secret)
            dropped[bundle.owner] = {name: seeds[name] for name in survivors.names if name in seeds}
            _compare_pairs(bundle, bundles, survivors)
    return Recovered(Unmasking(own, dropped, keys.group, roster.circle), tuple(ignored))


def _require_read(held: Sequence[ShareBundle], survivors: SurvivorList) -> None:
    """Raise `NotesWantedError` unless all is read that concerns the silos that have dropped out."""
    gone = [bundle for bundle in held if bundle.owner not in survivors.among]
    unread = {bundle.owner for bundle in gone if not bundle.whole}
    for bundle in held:
        near = {one.owner for one in gone if bundle.owner in one.holders and bundle.owner in survivors.among}
        unread |= near.difference(bundle.pairs[survivors.tensor])
    if unread:
        raise NotesWantedError(tuple(sorted(unread)))


def words_in_reveals(  # noqa: PLR0917  # a protocol step's dataflow
    blobs: Mapping[str, bytes],
    bundles: Mapping[str, ShareBundle],
    survivors: SurvivorList,
    participants: Iterable[str],
    roster: Roster,
    keys: GroupKeys,
    trust: Trust,
) -> dict[str, Word]:
    """Return the words of those whose reveals can be used, by sender, however few these are."""
    of, words = _by_holder(_held(bundles, survivors, participants)), {}
    for sender, blob in sorted(blobs.items()):
        with suppress(CryptoError):
            words[sender] = _open_reveal(blob, sender, of[sender], survivors, roster=roster, keys=keys, trust=trust)[1]
    return words


def _require_roster(attempt: AttemptRef, roster: Roster, pairs: PairSecrets, me: str) -> None:
    pairs.check(me, roster)
    if attempt.roster != roster.digest:
        msg = "the attempt belongs to another roster; agree on keys with this roster first"
        raise RecoveryRefused(msg)


def _held(
    bundles: Mapping[str, ShareBundle], survivors: SurvivorList, participants: Iterable[str]
) -> list[ShareBundle]:
    """Return the participants' bundles in sorted order."""
    names = sorted(set(participants))
    held = [bundles[name] for name in names if name in bundles]
    fits = [bundle.attempt == survivors.attempt and survivors.tensor in bundle.pairs for bundle in held]
    complete = set(survivors.names) <= set(names) and [bundle.owner for bundle in held] == names and all(fits)
    if not complete or survivors.notes != notes_digest(bundles, names):
        msg = "survivors, participants and their shares notes do not belong to one attempt; begin a new attempt"
        raise RecoveryRefused(msg)
    return held


def _by_holder(held: Sequence[ShareBundle]) -> defaultdict[str, list[ShareBundle]]:
    """Return the bundles of which each silo holds shares, in their order."""
    of: defaultdict[str, list[ShareBundle]] = defaultdict(list)
    for bundle in held:
        for holder in bundle.holders:
            of[holder].append(bundle)
    return of


def _spot(bundle: ShareBundle, survivors: SurvivorList) -> Spot:
    """Return which secret of the bundle's owner the survivors reveal. It is always only one of the two."""
    return survivors.tensor, "own" if bundle.owner in survivors.among else "key"


def _fits(bundle: ShareBundle, spot: Spot, holder: str, value: bytes) -> bool:
    """Whether a share, or with an empty holder the secret, is what the owner has committed to."""
    return bundle.commitments[spot][holder] == _commit(bundle.attempt, bundle.owner, spot, holder, value)


def _open_reveal(
    blob: bytes,
    sender: str,
    of_sender: Sequence[ShareBundle],
    survivors: SurvivorList,
    *,
    roster: Roster,
    keys: GroupKeys,
    trust: Trust,
) -> tuple[dict[str, bytes], Word]:
    """Return the sender's share of each bundle of which it holds any, by owner, and the sender's word.

    `of_sender`: these bundles (`_by_holder`).

    Raises `CryptoError` if the note is wrong or its sender no survivor.
    """
    entry, context = roster.entry(sender), _reveal_context(survivors, sender)
    end = SHARE_BYTES * len(of_sender) + WORD_BYTES
    plain = open_under(derive(keys.group, context), blob, context, "reveal")
    if sender not in survivors.among or not end < len(plain) <= end + MAX_SIGNATURE:
        msg = f"the reveal of {sender!r} has a wrong length, or the silo is no survivor; its shares cannot be used"
        raise RecoveryRefused(msg)
    pieces = Pieces(plain, 0)
    shares, (word,) = pieces.take(SHARE_BYTES, len(of_sender)), pieces.take(WORD_BYTES, 1)
    entry.verify(trust, _reveal_message(context, [*shares, word]), plain[end:])
    for bundle, share in zip(of_sender, shares, strict=True):
        spot = _spot(bundle, survivors)
        if sender in bundle.commitments[spot] and not _fits(bundle, spot, sender, share):
            msg = f"{sender!r} revealed another share than {bundle.owner!r} dealt; its shares cannot be used"
            raise RecoveryRefused(msg, sender)
    owners = (bundle.owner for bundle in of_sender)
    return dict(zip(owners, shares, strict=True)), Word.from_bytes(word)


def _combine(bundle: ShareBundle, survivors: SurvivorList, shares: Mapping[str, bytes], needed: int) -> bytes | None:
    """Return the owner's secret from its holders' shares; None if they do not combine and nobody can tell why yet.

    If the whole note was read, every share fits its commitment, and enough are there (docs/design/sums.md, "The
    circle"). Then a failure is the dealer's fault.
    """
    numbers = {holder: number for number, holder in enumerate(bundle.holders, 1)}
    try:
        secret = combine({numbers[holder]: share for holder, share in shares.items()}, needed)
    except SealError:
        secret = b""
    if _fits(bundle, _spot(bundle, survivors), "", secret):
        return secret
    if not bundle.whole:
        return None
    msg = f"the shares that {bundle.owner!r} dealt do not combine; begin a new attempt without {bundle.owner!r}"
    raise RecoveryRefused(msg, bundle.owner)


def _withdraw(bundle: ShareBundle, survivors: SurvivorList, key: bytes) -> dict[str, bytes]:
    """Open a dropped silo's deposit and check it against its commitments."""
    owner, tensor = bundle.owner, survivors.tensor
    bound = _bound("deposit", bundle.attempt, owner, tensor)
    try:
        plain = open_under(derive(key, bound), bundle.deposits[tensor], bound, "deposit")
    except SealError:
        plain = b""
    others = [name for name in bundle.holders if name != owner]
    seeds = dict(zip(others, Pieces(plain, 0).take(KEY_BYTES, len(others)), strict=True))
    if any(_commit_pair(bundle.attempt, tensor, seeds[name]) != bundle.pairs[tensor][name] for name in others):
        msg = f"{owner!r} deposited other pair seeds than it committed to; begin a new attempt without {owner!r}"
        raise RecoveryRefused(msg, owner)
    return seeds


def _compare_pairs(bundle: ShareBundle, bundles: Mapping[str, ShareBundle], survivors: SurvivorList) -> None:
    """Raise if the two owners of a pair seed committed to different seeds.

    A survivor has seen the other's note before it uploaded, and an honest one would not have.
    """
    gone, tensor = bundle.owner, survivors.tensor
    for name in sorted(set(survivors.names) & set(bundle.pairs[tensor])):
        if bundle.pairs[tensor][name] != bundles[name].pairs[tensor][gone]:
            msg = f"{gone!r} and {name!r} committed to different seeds, and {name!r} uploaded nevertheless"
            raise RecoveryRefused(msg, name)


def _shares_key(pairs: PairSecrets, owner: str, holder: str, bound: bytes) -> bytes:
    """Derive the key between dealer and holder.

    A dealer keeps its own shares under all its pair secrets at once. Only all its neighbours together know all of
    these. On a circle they are more than may be hostile, and else a sum hides nothing from all others together anyway.
    """
    other = {owner, holder} & set(pairs)
    return derive(b"".join(pairs[name] for name in sorted(other or set(pairs))), bound)


def _reveal_context(survivors: SurvivorList, sender: str) -> bytes:
    """Bind a reveal to sender and list, and so to the participants' notes, which the list names by their digest."""
    return canonical("reveal", survivors.to_sign(), sender)


def _reveal_message(context: bytes, pieces: Sequence[bytes]) -> bytes:
    return canonical("revealed shares", context, *pieces)
