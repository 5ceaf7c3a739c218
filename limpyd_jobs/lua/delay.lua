-- verb: delay
-- from: running
-- to: delayed or waiting
-- what: at the request of its code, or found delayed in a waiting list; may claim the next job
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim, or '' for a job that nobody claimed
-- ARGV[4]  queue: model name and pk
-- ARGV[5]  queue model
-- ARGV[6]  queue name
-- ARGV[7]  delay: '+<microseconds>' or '<microseconds since the epoch>'; '' or a past one makes the job wait
-- ARGV[8]  priority, or '' to keep it
-- ARGV[9]  'uncounted' for a try that is none of its retry policy, of a job that was not canceled meanwhile; or ''
-- ARGV[10…] the next claim: lists, token, lease, classes, as in claim.lua; or nothing
--
-- {'done', '', delayed until or '', reindex, next claim}    as JSON
-- {'canceled'}   as its status says: nothing is changed
-- {'refused'}    somebody else holds the claim: nothing is changed
-- {'gone'}

--@include ending
--@include places

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]
local queue_model, queue_name, due = model_of(ARGV[5]), ARGV[6], due_at(ARGV[7])

local refused = refusal(job, token)
if refused then
  return ended_before(job, token, 'done', 10) or refused
end

local hash = redis.call('HMGET', job.key, 'priority', '_uncounted_tries')
local changes = {}
if ARGV[9] == 'uncounted' then
  if claim_of(job).status == 'c' then
    return {'canceled'}
  end
  changes._uncounted_tries = string.format('%d', (tonumber(hash[2]) or 0) + 1)
end
local priority = ARGV[8] ~= '' and ARGV[8] or hash[1] or '0'
local base = prepare_place(queue_model, queue_name, priority, due)
placed(changes, priority, due, base)
end_claim(queue, job, changes, token)
push(base, job.ident, changes.status, due, false)
return ended('done', '', changes.delayed_until or '', 10)
