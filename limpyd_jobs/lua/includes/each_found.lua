-- Each: does the same with each job that is found, one by one. These names mean the same everywhere:
--   model     of the jobs
--   dry       '1' to change nothing, but to tell each outcome

--@include idents
--@include places
--@include quarantine
--@include counting

local job_model = model_of(request.model)
local token_position = position_of('_claim_token')
position_of('_queue_key')

-- As unplace, but looks first where most jobs stand: jobs that wait are at the beginning of their list, as the oldest
-- come first. To look for each in a whole list would take much longer.
local function take_out(queue_model, name, job)
  local base = job.queue_key
  local is_out = base and (job.status == STATUSES.DELAYED and redis.pcall('ZREM', base .. ':delayed', job.ident)
    or job.status == STATUSES.WAITING and redis.pcall('LREM', base .. ':waiting', 1, job.ident))
  if is_out ~= 1 then unplace(queue_model, name, job) end
end

local function outcome_of(failure)
  return is_refused_by_redis(failure) and 'refused by Redis' or 'broken'
end

-- Calls `why_not` with each job that is found, whether it is claimed, and the name of its queue: it returns the outcome
-- if the job must be left alone. For the others, calls `act` with the job and the name of its queue: it returns an
-- outcome. Answers how many jobs have which outcome, beside what is in `reply`.
local function do_each(why_not, act, reply)
  return count_outcomes(function(pk, values)
    local job = {
      model = job_model, pk = pk, ident = job_model.path .. ':' .. pk, key = hash_key(job_model, pk),
      status = values[positions.status], queue_key = queue_of(pk, values),
    }
    local own_name = name_of_queue(job.queue_key)
    local is_fine, outcome = pcall(why_not, job, values[token_position], own_name)
    if is_fine and not outcome then
      if request.dry then
        outcome = 'done'
      else
        is_fine, outcome = pcall(act, job, own_name)
      end
    end
    return is_fine and outcome or outcome_of(outcome)
  end, reply)
end
