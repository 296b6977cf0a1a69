#!/usr/bin/env bash
# The container's main process: a health server, then the agent once for QUERY; then idle in a Space, else end.
#
# QUERY, PORT, KEEP_ALIVE, RUN_STATE_DIR and RUN_ALWAYS are described in config.py; Hugging Face sets SPACE_ID in
# a Space. Everything goes to standard output, one stream, so that trace and report stand in order in the log.
set -u
# Job control: every child gets a process group of its own. A Ctrl-C at a terminal then reaches this script alone
# and the agent gets it once, forwarded; the agent takes a second signal as "end at once, without a report".
set -m
exec 2>&1 </dev/null
cd -- "$(dirname -- "${BASH_SOURCE[0]}")" || exit 1

GRACE_SECONDS=6 # for the partial report after a signal; `docker stop` kills after 10
FENCE='=========='

agent='' health='' watchdog='' report='' stopped_by=''

say() { printf '[m3] %s\n' "$*"; }

# A setting without the white space around it; what is left empty counts as unset, as in config.py.
trimmed() {
  local text=$1
  text=${text#"${text%%[![:space:]]*}"}
  printf '%s' "${text%"${text##*[![:space:]]}"}"
}

is_on() {
  local text
  text=$(trimmed "$1")
  [[ ${text,,} =~ ^(1|true|yes|on)$ ]]
}

in_space() { [ -n "$(trimmed "${SPACE_ID:-}")" ]; }

# --- signals and the end

forward() {
  kill -s "$1" "$agent" 2>/dev/null
  [ -n "$watchdog" ] && return
  { sleep "$GRACE_SECONDS" && kill -s KILL -- "-$agent"; } &
  watchdog=$!
}

# shellcheck disable=SC2329 # called by trap
on_signal() {
  stopped_by=$1
  case $agent in
    '') finish 0 ;;
    starting) ;; # its process id is not known yet; run_agent forwards the signal
    *) forward "$1" ;;
  esac
}
trap 'on_signal TERM' TERM
trap 'on_signal INT' INT

# shellcheck disable=SC2329 # called by trap
clean_up() {
  [ -z "$health" ] || { kill "$health" && wait "$health"; }
  [ -z "$watchdog" ] || { kill -- "-$watchdog" && wait "$watchdog"; }
  [ -z "$report" ] || rm -f -- "$report"
} 2>/dev/null
trap clean_up EXIT

# End with the code $1, or the code of the signal that came. Where the container is to stay, stay first: a Space
# whose process ends is shown as broken and may be started again, and each start costs a run.
finish() {
  if [ -z "$stopped_by" ] && { in_space || is_on "${KEEP_ALIVE:-}"; }; then
    say 'Idle. Nothing runs until this container is started again.'
    while :; do # until a signal
      wait "$health"
      sleep 5 & # the health server is gone: start it again
      wait $!
      start_health >/dev/null 2>&1
    done
  fi
  case $stopped_by in
    TERM) exit 143 ;;
    INT) exit 130 ;;
    *) exit "$1" ;;
  esac
}

# --- the health server

start_health() {
  python3 -m m3.health "$port" &
  health=$!
}

# Up to 5 s until the port answers, so that a probe finds it open before the run takes the processor.
await_health() {
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    kill -0 "$health" 2>/dev/null || break
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      say "Health server on port $port."
      return
    fi
    sleep 0.05
  done
  say "The health server could not be started on port $port; going on without it."
}

# --- what to say before a run

note_missing_query() {
  say 'QUERY is not set, so there is nothing to research.'
  if in_space; then
    say 'Set it under Settings, "Variables and secrets"; a variable is public, a secret is not. Saving restarts the Space.'
  else
    say 'Set it, for example: docker run -e QUERY="Compare Raptor RAG vs HyDE" …'
  fi
}

note_missing_key() {
  local set="${LLM_PROVIDER:-}${GROQ_API_KEY:-}${ANTHROPIC_API_KEY:-}${OPENAI_API_KEY:-}${OPENAI_BASE_URL:-}"
  [ -z "$(trimmed "$set")" ] && [ ! -e .env ] || return
  say 'No model key is set, so the offline mock runs: it copies sentences by a fixed rule.'
  if in_space; then
    say 'Set the secret GROQ_API_KEY (free at console.groq.com): Settings, "Variables and secrets", "New secret".'
  else
    say 'Set GROQ_API_KEY (free at console.groq.com), for example: docker run -e GROQ_API_KEY=… -e QUERY="…" …'
  fi
}

# Hugging Face lets a Space connect to the ports 80, 443 and 8080 only; elsewhere a run would wait in vain.
note_closed_ports() {
  local name url
  for name in GROQ_BASE_URL OPENAI_BASE_URL SEARXNG_BASE_URL UPSTASH_REDIS_REST_URL; do
    url=$(trimmed "${!name:-}")
    [[ $url =~ ^https?://[^/]*:([0-9]+)(/|$) ]] || continue
    case ${BASH_REMATCH[1]} in
      80 | 443 | 8080) ;;
      *) say "WARNING: $name names port ${BASH_REMATCH[1]}; a Space can reach only the ports 80, 443 and 8080." ;;
    esac
  done
}

# --- one run for each question, where RUN_STATE_DIR asks for it

# Leave the mark of QUERY in RUN_STATE_DIR before the run, so that not even a crash half-way makes it run twice.
# `noclobber` makes looking and writing one step: of two containers that share the folder only one runs.
mark_run() {
  local folder marker
  folder=$(trimmed "${RUN_STATE_DIR:-}")
  [ -n "$folder" ] || return 0
  marker=$folder/ran-$(printf '%s' "$query" | sha256sum | cut -c1-32)
  mkdir -p -- "$folder" 2>/dev/null
  if (set -o noclobber && date -u +%FT%TZ >"$marker") 2>/dev/null; then
    own_mark=$marker
    say "This run is noted in RUN_STATE_DIR: the same QUERY does not run again. RUN_ALWAYS=1 runs it all the same."
  elif is_on "${RUN_ALWAYS:-}"; then
    say 'RUN_ALWAYS is set: RUN_STATE_DIR is not asked.'
  elif [ -e "$marker" ]; then
    say "This QUERY was already run ($(head -c 20 -- "$marker")), says RUN_STATE_DIR; it is not run again."
    say 'Change QUERY, or set RUN_ALWAYS=1 to run it at every start.'
    finish 0
  else
    say "RUN_STATE_DIR ($folder) cannot be written, so a run could not be kept from running again; none is started."
    say 'Mount a folder there that uid 1000 may write, unset RUN_STATE_DIR, or set RUN_ALWAYS=1.'
    finish 2
  fi
}

# --- the run

run_agent() {
  # The trace (stderr) goes to the log as it comes, the report (stdout) after it, between the fences.
  agent=starting
  python3 m3_react_agent.py --query="$query" >"$report" &
  agent=$!
  [ -z "$stopped_by" ] || [ -n "$watchdog" ] || forward "$stopped_by"
  wait "$agent"
  code=$?
  while kill -0 "$agent" 2>/dev/null; do # a signal ended the wait, not the agent
    wait "$agent"
    code=$?
  done
}

print_report() {
  [ -s "$report" ] || return
  printf '\n%s REPORT %s\n\n' "$FENCE" "$FENCE"
  # No carriage return or escape sequence in the log, wherever one may have come from; nor a false fence.
  LC_ALL=C tr -d '\000-\010\013-\037\177' <"$report" | sed "s/^$FENCE/ &/"
  printf '\n%s END OF REPORT %s\n\n' "$FENCE" "$FENCE"
}

meaning_of() {
  case $1 in
    0) echo 'answered' ;;
    1) echo 'failed: nothing could be read' ;;
    2) echo 'wrong settings: nothing was run' ;;
    3) echo 'partial: a limit or a fault ended it' ;;
    4) echo 'nothing found that supports an answer' ;;
    130 | 143) echo 'stopped by a signal' ;;
    137) echo 'killed' ;;
    *) echo 'unexpected' ;;
  esac
}

port=$(trimmed "${PORT:-}")
[[ $port =~ ^[1-9][0-9]{0,4}$ ]] && ((port <= 65535)) || port=7860 # the agent says what is wrong with it
query=$(trimmed "${QUERY:-}")
own_mark='' code=0
export PYTHONUNBUFFERED=1 NO_COLOR=1

start_health
await_health
if [ -z "$query" ]; then
  note_missing_query
  finish 2
fi
note_missing_key
in_space && note_closed_ports
report=$(mktemp 2>/dev/null || mktemp -p /dev/shm 2>/dev/null) || {
  say 'The report needs a folder for temporary files that can be written: docker run --tmpfs /tmp …'
  finish 2
}
mark_run
run_agent
print_report
agent='' # from here on a signal ends this script at once
say "The agent ended with exit code $code ($(meaning_of "$code"))."
if [ -n "$own_mark" ]; then
  # Wrong settings are mended and tried again: that was no run.
  [ "$code" -ne 2 ] || rm -f -- "$own_mark"
elif in_space; then
  say 'Each start runs QUERY again, also the one that wakes a sleeping Space; RUN_STATE_DIR can prevent that.'
fi
finish "$code"
