-- Envelope: the request of a script, and its reply.
--
-- The header of a script lists the names of its request, and ARGV has the values in that order: clients and servers
-- take much longer for names on the wire. '1' stands for yes; a value that is empty, or not given, is nil. These names
-- mean the same everywhere:
--   model, job_model, queue_model, error_model   JSON: see records.lua
--   ident       class path and pk of a job: 'myapp.jobs.MyJob:12'
--   token       of the claim on the job; a call that makes a claim needs one that was never used before. See
--               checked_token
--   queue_key   the beginning of the keys of a queue: model name and pk
--   lists       keys of waiting lists, the first to be served first, one in a line
--   lease       for how long a claim holds: seconds
--   classes     the job classes known to the caller: class path and job model, one in a line
--   delay       '+<microseconds>' from now, or '<microseconds since the epoch> <the date>'
--   fields      of a new record, or to be set: field, value… after all the others
--   pks, idents   JSON, a list
--   repair      '1' to put right what is wrong, not only to look
--
-- Everywhere, STATUSES.WAITING is the letter that is stored for that status of a job, and so are the others. They are
-- those of limpyd_jobs/statuses.py, and are put in place before a script is sent, as the values of the request are.

local function fields_from(first)
  local fields = {}
  for i = first, #ARGV, 2 do
    fields[ARGV[i]] = ARGV[i + 1]
  end
  return fields
end

-- The token of a request; false if the caller says that the job is not claimed. A token that is missing is an error: it never
-- means that, as its claim may have ended meanwhile.
local function checked_token(token, is_unclaimed)
  if is_unclaimed and not token then
    return false
  elseif type(token) ~= 'string' or token == '' then
    error('the token is missing', 0)
  end
  return token
end

-- The changes of fields with indexes that only limpyd can maintain, so that the caller can do so:
-- {model name, pk, field, old value or false, new value or false}…
local reindex = {}

-- Why the entry of this step in the audit is not written, if it is not.
local not_audited

-- The ids of the flows of which something is left to do, if any: the caller goes on with it. See step_flow.lua.
local unfinished_flows

-- The reply, as JSON, which clients read much faster than so many values: the outcome, its details, `not_audited`,
-- `flows`, and `reindex`, if there are indexes to maintain. An empty list is an object.
local function answer(outcome, reply)
  reply = reply or {}
  reply.outcome = outcome
  if not_audited then reply.not_audited = not_audited end
  if unfinished_flows then reply.flows = unfinished_flows end
  if #reindex > 0 then reply.reindex = reindex end
  return cjson.encode(reply)
end
