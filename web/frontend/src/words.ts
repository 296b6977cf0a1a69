/** Which words of a passage the claim has too. */

const WORD = /[\p{L}\p{N}]+(?:[.,'’-][\p{L}\p{N}]+)*/gu;
const STEM = 6;

export interface Marked {
  readonly text: string;
  readonly hit: boolean;
}

/** A quote in pieces, marked where a word of the claim stands: numbers whole, longer words by their beginning. */
export function markedWords(quote: string, claim: string): Marked[] {
  const wanted = new Set(Array.from(claim.matchAll(WORD), ([word]) => key(word)).filter(Boolean));
  const pieces: Marked[] = [];
  const add = (text: string, hit: boolean): void => {
    const last = pieces.at(-1);
    if (last?.hit === hit) pieces[pieces.length - 1] = { text: last.text + text, hit };
    else if (text) pieces.push({ text, hit });
  };
  let at = 0;
  for (const match of quote.matchAll(WORD)) {
    add(quote.slice(at, match.index), false);
    add(match[0], wanted.has(key(match[0])));
    at = match.index + match[0].length;
  }
  add(quote.slice(at), false);
  return pieces;
}

/** What two forms of one word share; "" for words too short to tell anything. */
function key(word: string): string {
  const small = word.toLowerCase();
  if (/\p{N}/u.test(small)) return small;
  return small.length < 4 ? "" : small.slice(0, STEM);
}
