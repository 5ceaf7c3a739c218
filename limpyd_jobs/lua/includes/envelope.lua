-- Envelope: what a script is asked for, and what it answers.
--
-- The header of a script lists the names of its request, and ARGV has the values in that order: clients and servers take
-- much longer for names on the wire. '1' stands for yes; what is empty, or not given, is nil. These mean the same
-- everywhere:
--   model, job_model, queue_model, error_model   JSON: see records.lua
--   ident       class path and pk of a job: 'myapp.jobs.MyJob:12'
--   token       of the claim on the job; of a call that makes one, never used before
--   queue_key   the beginning of the keys of a queue: model name and pk
--   lists       keys of waiting lists, the first to be served first, one in a line
--   lease       for how long a claim holds: seconds
--   classes     the job classes known to the caller: class path and job model, one in a line
--   delay       '+<microseconds>' from now, or '<microseconds since the epoch> <the date>'
--   fields      of a new record, or to be set: field, value… after all the others
--   pks, idents   JSON, a list
--   repair      '1' to put right what is wrong, not only to look

--@names
local request = {fields = {}}
for i, name in ipairs(names) do
  if ARGV[i] ~= '' then request[name] = ARGV[i] end
end
for i = #names + 1, #ARGV, 2 do
  request.fields[ARGV[i]] = ARGV[i + 1]
end

-- The changes made to fields with indexes that only limpyd can maintain, for the caller to do so:
-- {model name, pk, field, old value or false, new value or false}…
local reindex = {}

-- The reply, as JSON, which clients read much faster than so many values: what became of the request, with what the
-- caller has to know of it, and `reindex`, if anything is to be done. A list that is empty is an object.
local function answer(outcome, reply)
  reply = reply or {}
  reply.outcome = outcome
  if #reindex > 0 then reply.reindex = reindex end
  return cjson.encode(reply)
end
