-- Successes: jobs that ran to their end, unless they were given another status meanwhile.

--@include claims

-- Ends the claim on a job that succeeded, with more changes to its hash, or deletes it. What is returned, if anything, says why not:
-- then nothing is changed. So it is for a caller who did that already, whose first reply was lost.
local function end_in_success(job, token, queue, changes, is_erased)
  local status = claim_of(job).status
  if status == 'c' then
    return 'canceled'
  elseif status == 'd' then
    return 'delayed'
  end
  local refused = refusal(job, token)
  if refused then
    return refused
  end
  probe('LLEN', queue .. ':success')
  changes.status, changes.queued = 's', false
  end_claim(queue, job, changes, token)
  if is_erased then
    delete_record(job.model, job.pk)
  else
    send('RPUSH', queue .. ':success', job.ident)
  end
end
