import type { StoredFile } from "./contract";

const QUESTIONS = [
  "Compare Raptor RAG vs HyDE",
  "How does reciprocal rank fusion combine several result lists?",
  "Why do language models overlook what stands in the middle of a long prompt?",
];

/** What the page shows before the first question. */
export function Empty({ files, onAsk }: { files: readonly StoredFile[]; onAsk: (question: string) => void }) {
  const newest = files.at(-1);
  const questions = newest ? [`What are the main points of ${newest.name}?`, ...QUESTIONS.slice(0, 2)] : QUESTIONS;
  return (
    <section className="empty" aria-labelledby="empty-title">
      <h2 id="empty-title">What would you like to know?</h2>
      <p>
        The agent searches, reads and answers. Every citation opens the exact passage it rests on, with a verdict on
        whether the passage bears the sentence out.
      </p>
      <h3>For example</h3>
      <ul>
        {questions.map((question) => (
          <li key={question}>
            <button type="button" onClick={() => onAsk(question)}>
              {question}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
