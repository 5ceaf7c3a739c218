-- verb: fail
-- from: running
-- to: error, waiting or delayed
-- what: put back while the tries allow it, in the same step; may claim the next job
--
-- KEYS     waiting lists to claim the next job from; none not to
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim, or '' for a job that nobody claimed
-- ARGV[4]  queue: model name and pk
-- ARGV[5]  how often the job may be put back
-- ARGV[6]  queue model
-- ARGV[7]  queue name
-- ARGV[8]  priority when put back
-- ARGV[9]  delay when put back: '' or '+<microseconds>'
-- ARGV[10] mode: 'place'; 'hold' leaves a job that may run again in error, claimed and queued, until its worker calls
--          requeue or disown
-- ARGV[11…] the next claim: token, lease, classes, as in claim.lua
--
-- {'error', end, '', reindex, next claim}
-- {'requeued', end, delayed until or '', reindex, next claim}
-- {'held', end, '', reindex, {'nothing'}}
-- {'refused'}    somebody else holds the claim: nothing is changed
-- {'gone'}

--@include claims
--@include places

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]
local requeue_times = tonumber(ARGV[5])

local refused = refusal(job, token)
if refused then
  return refused
end

local function may_run_again()
  local hash = redis.call('HMGET', job.key, 'tries', 'cancel_on_error')
  return (tonumber(hash[1]) or 0) <= requeue_times and (hash[2] or '') == ''
end

local finish = date_text(now())
redis.call('RPUSH', queue .. ':errors', job.ident)

if not may_run_again() then
  update(job.model, job.pk, end_claim(queue, job.ident, {status = 'e', ['end'] = finish, queued = false}))
  return ended('error', finish, '', 11)
elseif ARGV[10] == 'hold' then
  update(job.model, job.pk, {status = 'e', ['end'] = finish})
  return {'held', finish, '', reindex, {'nothing'}}
end

local changes = end_claim(queue, job.ident, {start = false, ['end'] = false})
place(job, cjson.decode(ARGV[6]), ARGV[7], ARGV[8], due_at(ARGV[9]), false, changes)
return ended('requeued', finish, changes.delayed_until or '', 11)
