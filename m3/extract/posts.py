"""Threads: the posts of forums, question-and-answer sites and comment pages, in order."""

from __future__ import annotations

import re

from m3.extract.dom import Element
from m3.patterns import lazy_pattern

# Where forum software puts the text of a post. Classes, ids and attributes as their templates write them.
_POST_BODY = lazy_pattern(
    r"""(?:^|\s)(?:
        bbWrapper|message-body|messageText|messageContent          # XenForo
       |cooked|topic-body__contents                               # Discourse
       |js-post-body|post-text               # Stack Exchange
       |postcontent|postbody-content|post-content|post_body|postmsg|post_message  # vBulletin, MyBB, FluxBB
       |usertext-body|md-div                                      # Reddit, Lemmy
       |commtext|toptext                                          # Hacker News
       |cPost_contentWrap|ipsType_richText                        # Invision
       |userContent                                               # Vanilla
       |t_f|Post-body                                             # Discuz, Flarum
       |lia-message-body-content                                  # Khoros
       |commentthread_comment_text|forum_op_content               # Steam
       |comment-body|comment-content|comment__body|comment__content|comment-text|commentText
       |bbp-reply-content|bbp-topic-content
    )(?=\s|$)""",
    re.X,
)
_POST_ID = lazy_pattern(r"^(?:post_message_|postmessage_|msg_\d|post-content-|postcontent)")
_POST_ATTRIBUTES = (
    ("itemprop", ("text", "commentText")),
    ("data-role", ("commentContent",)),
    ("component", ("post/content",)),
    ("slot", ("text-body", "comment")),
    ("property", ("schema:text", "content:encoded")),
)
_SIGNATURE = lazy_pattern(

        r"(?:^|[\s_-])(?:signature|sig|postsig|postsignature|edited-by|lastedit|postedit|edited"
        r"|ipsComment_edited|post-links"
    r"|bbcodeblock-expandlink|js-selecttoquoteend|notice)(?=$|[\s_-])", re.I,
)  # fmt: skip
_QUOTED_POST = lazy_pattern(
    r"(?:^|[\s_])(?:bbCodeBlock--quote|quote|ipsQuote|quotebox|bbcode_quote|quotetitle|bb_quote"
    r"|UserQuote|mycode_quote)(?=$|\s)"
)


def find_posts(body: Element) -> list[Element]:
    """The elements that hold the posts' texts, in document order; none inside another."""
    found: list[Element] = []
    stack = list(reversed(list(body.elements)))
    while stack:
        element = stack.pop()
        if element.attrs and _SIGNATURE.search(element.label):
            continue
        if is_post_body(element) and element.chars:
            found.append(element)
        else:
            stack.extend(reversed(list(element.elements)))
    return found


def is_post_body(element: Element) -> bool:
    """True for an element that known forum software marks as the text of one post."""
    attributes = element.attrs
    if not attributes:
        return False
    names = attributes.get("class")
    if names and names.split()[:1] == ["content"] and _in_post(element):  # phpBB
        return True
    if names and _POST_BODY.search(names[:300]) and element.name not in ("html", "body", "main"):
        return True
    identifier = attributes.get("id")
    if identifier and _POST_ID.match(identifier):
        return True
    return any(attributes.get(name) in values for name, values in _POST_ATTRIBUTES if name in attributes)


def _in_post(element: Element) -> bool:
    return any("postbody" in getattr(p, "attrs", {}).get("class", "").split() for p in list(element.parents)[:3])


def drop_signatures(post: Element) -> None:
    """Take out of a post what is not said in it: signatures, edit notes, quotations of other posts of the thread."""
    for element in post.descend():
        named = "class" in element.attrs or "id" in element.attrs
        if named and element.chars < post.chars:
            quoted = _QUOTED_POST.search(element.attrs.get("class", ""))
            if quoted or _SIGNATURE.search(element.label):
                element.drop()
