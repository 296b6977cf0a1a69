import { useCallback, useEffect, useRef, useState } from "react";

import { deleteFile, listFiles, RequestError, uploadFile } from "./api";
import type { StoredFile } from "./contract";
import { bytes } from "./format";

export const FILE_TYPES = [".pdf", ".txt", ".md", ".csv", ".html"] as const;
export const LARGEST_FILE = 20_000_000;

export interface Upload {
  readonly id: number;
  readonly name: string;
  /** The share that has been sent, 0 to 1; 1 while the server reads it. */
  readonly share: number;
  readonly error: string;
}

export interface Files {
  readonly files: readonly StoredFile[];
  readonly uploads: readonly Upload[];
  readonly loaded: boolean;
  readonly error: string;
  /** The last thing that happened, for the screen reader. */
  readonly said: string;
  readonly add: (files: Iterable<File>) => void;
  readonly remove: (name: string) => Promise<void>;
  readonly cancel: (id: number) => void;
  readonly reload: () => void;
}

/** The reader's files on the server: loaded on start and after each change; uploads go one after another. */
export function useFiles(onUnauthorized: () => void, largest: number): Files {
  const [files, setFiles] = useState<readonly StoredFile[]>([]);
  const [uploads, setUploads] = useState<readonly Upload[]>([]);
  const [loaded, setLoaded] = useState(false);
  const [error, setError] = useState("");
  const [said, setSaid] = useState("");
  const queue = useRef<Promise<void>>(Promise.resolve());
  const aborts = useRef(new Map<number, AbortController>());
  const next = useRef(1);

  const fault = useCallback(
    (problem: unknown): string => {
      if (problem instanceof RequestError && problem.status === 401) {
        onUnauthorized();
        return ""; // the page asks for a token, which says it all
      }
      return problem instanceof Error ? problem.message : "Something went wrong.";
    },
    [onUnauthorized],
  );

  const reload = useCallback(async () => {
    try {
      setFiles(await listFiles());
      setError("");
      setLoaded(true);
    } catch (problem) {
      setError(fault(problem));
    }
  }, [fault]);

  useEffect(() => void reload(), [reload]);

  const send = useCallback(
    async (file: File, id: number): Promise<void> => {
      const change = (more: Partial<Upload>) =>
        setUploads((now) => now.map((one) => (one.id === id ? { ...one, ...more } : one)));
      const controller = aborts.current.get(id);
      if (!controller || controller.signal.aborted) return;
      try {
        const name = await uploadFile(file, (share) => change({ share }), controller.signal);
        setUploads((now) => now.filter((one) => one.id !== id));
        setSaid(`${name} uploaded.`);
      } catch (problem) {
        if (controller.signal.aborted) return;
        const message = fault(problem);
        change({ error: message });
        setSaid(`${file.name} was not uploaded: ${message}`);
      } finally {
        aborts.current.delete(id);
        await reload();
      }
    },
    [fault, reload],
  );

  const add = useCallback(
    (chosen: Iterable<File>) => {
      for (const file of chosen) {
        const id = next.current++;
        const problem = refused(file, largest);
        setUploads((now) => [...now, { id, name: file.name, share: 0, error: problem }]);
        if (problem) {
          setSaid(`${file.name} was not uploaded: ${problem}`);
          continue;
        }
        aborts.current.set(id, new AbortController());
        queue.current = queue.current.then(() => send(file, id));
      }
    },
    [send, largest],
  );

  const cancel = useCallback((id: number) => {
    aborts.current.get(id)?.abort();
    setUploads((now) => now.filter((one) => one.id !== id));
  }, []);

  const remove = useCallback(
    async (name: string) => {
      try {
        await deleteFile(name);
        setSaid(`${name} deleted.`);
        await reload();
      } catch (problem) {
        await reload(); // it may be gone already, deleted from another tab
        setError(fault(problem));
      }
    },
    [fault, reload],
  );

  return { files, uploads, loaded, error, said, add, remove, cancel, reload: () => void reload() };
}

/** Why a file is not worth sending; "" when it is. The server decides; this only saves the reader the wait. */
export function refused(file: { name: string; size: number }, largest = LARGEST_FILE): string {
  const dot = file.name.lastIndexOf(".");
  const ending = dot < 0 ? "" : file.name.slice(dot).toLowerCase();
  if (!(FILE_TYPES as readonly string[]).includes(ending)) return `Only ${FILE_TYPES.join(", ")} files can be read.`;
  if (file.size > largest) return `Files may have up to ${bytes(largest)}.`;
  return "";
}
