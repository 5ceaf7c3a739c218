-- verb: fail
-- from: running
-- to: error, waiting or delayed
-- what: put back while the tries allow it, in the same step; may claim the next job
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim, or '' for a job that nobody claimed
-- ARGV[4]  queue: model name and pk
-- ARGV[5]  how often the job may be put back; or '' to do so whatever its tries are, as its retry policy says so
-- ARGV[6]  queue model
-- ARGV[7]  queue name
-- ARGV[8]  priority when put back
-- ARGV[9]  delay when put back: '' or '+<microseconds>'
-- ARGV[10] mode: 'place'; 'hold' leaves a job that may run again in error, claimed and queued, until its worker calls
--          requeue or abandon; 'hold anyway' does so whatever its field cancel_on_error says
-- ARGV[11] how long ago its code began, in microseconds; or '' if that was when it was claimed
-- ARGV[12…] the next claim: lists, token, lease, classes, as in claim.lua; or nothing
--
-- {'error', end, '', reindex, next claim}    as JSON
-- {'requeued', '', delayed until or '', reindex, next claim}    as JSON
-- {'held', end, '', reindex, {'nothing'}}
-- {'refused'}    somebody else holds the claim: nothing is changed
-- {'gone'}

--@include ending
--@include places

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]
local requeue_times = tonumber(ARGV[5]) or math.huge

local refused = refusal(job, token)
if refused then
  return ended_before(job, token, 'requeued', 12) or refused
end

local hash = redis.call('HMGET', job.key, 'tries', 'cancel_on_error', 'priority', '_first_priority')

local function may_run_again()
  local is_to_be_canceled = (hash[2] or '') ~= '' and ARGV[10] ~= 'hold anyway'
  return requeue_times > 0 and (tonumber(hash[1]) or 0) <= requeue_times and not is_to_be_canceled
end

-- What to note of its priority if it is its retry policy that changes it, to another one or, if that is not decided yet,
-- to its own; nil for nothing.
local function note(priority)
  local own = hash[3] or '0'
  local is_to_be_noted = ARGV[5] == '' and (ARGV[10] ~= 'place' or priority ~= own)
  return is_to_be_noted and note_of_priority(first_priority(hash[4], own) or own, priority) or nil
end

probe('LLEN', queue .. ':errors')
local finish = now_text()
local start = ARGV[11] ~= '' and date_text(now() - tonumber(ARGV[11])) or nil

if not may_run_again() then
  end_claim(queue, job, {status = 'e', start = start, ['end'] = finish, queued = false}, token)
  redis.call('RPUSH', queue .. ':errors', job.ident)
  return ended('error', finish, '', 12)
elseif ARGV[10] ~= 'place' then
  update(job.model, job.pk, {
    status = 'e', start = start, ['end'] = finish, _first_priority = note(hash[3] or '0'),
  })
  redis.call('RPUSH', queue .. ':errors', job.ident)
  return {'held', finish, '', reindex, {'nothing'}}
end

local due = due_at(ARGV[9])
local base = prepare_place(model_of(ARGV[6]), ARGV[7], ARGV[8], due)
local changes = placed({start = false, ['end'] = false, _first_priority = note(ARGV[8])}, ARGV[8], due, base)
end_claim(queue, job, changes, token)
push(base, job.ident, changes.status, due, false)
redis.call('RPUSH', queue .. ':errors', job.ident)
return ended('requeued', '', changes.delayed_until or '', 12)
